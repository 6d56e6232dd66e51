// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"sync"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// EtcdClient is what the controller asks of etcd. A *clientv3.Client is one.
type EtcdClient interface {
	Status(ctx context.Context, endpoint string) (*clientv3.StatusResponse, error)
	MemberList(ctx context.Context, options ...clientv3.OpOption) (*clientv3.MemberListResponse, error)
}

// Etcd is an etcd cluster and the endpoints at which annex reaches it.
type Etcd struct {
	Client    EtcdClient
	Endpoints []string
}

// observation is what an etcd cluster answered.
type observation struct {
	// endpoints holds an answer or an error for each endpoint, in order.
	endpoints []endpointAnswer
	// members and membersErr are the answer of the cluster as a whole: it needs
	// a quorum, which the answer of an endpoint does not.
	members    *clientv3.MemberListResponse
	membersErr error
}

// endpointAnswer is what one endpoint says of itself.
type endpointAnswer struct {
	endpoint string
	status   *clientv3.StatusResponse
	err      error
}

// observe asks all endpoints and the cluster, at the same time. It asks nothing
// that etcd would write to its log, such as the list of alarms: the status of an
// endpoint names them too.
func (e Etcd) observe(ctx context.Context) observation {
	seen := observation{endpoints: make([]endpointAnswer, len(e.Endpoints))}
	var asking sync.WaitGroup
	for i, endpoint := range e.Endpoints {
		asking.Go(func() {
			status, err := e.Client.Status(ctx, endpoint)
			seen.endpoints[i] = endpointAnswer{endpoint: endpoint, status: status, err: err}
		})
	}
	asking.Go(func() { seen.members, seen.membersErr = e.Client.MemberList(ctx) })
	asking.Wait()
	return seen
}
