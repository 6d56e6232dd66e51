// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package etcdtest

import (
	"context"
	"fmt"
	"net"
	"testing"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/version"
	"google.golang.org/grpc"
)

// Imitation is a server with etcd's API that stores nothing. It refuses transactions, as servers for
// kube-apiserver do with all that are not a create, an update or a delete of one key.
type Imitation struct {
	etcdserverpb.UnimplementedKVServer
	etcdserverpb.UnimplementedMaintenanceServer
	etcdserverpb.UnimplementedClusterServer
	// Cluster is the ID that it claims to have.
	Cluster uint64
	// Answer, if set, is its answer to transactions.
	Answer *etcdserverpb.TxnResponse
}

// Start serves on a free loopback port until the end of the test, and returns the endpoint.
func (i *Imitation) Start(t testing.TB) string {
	t.Helper()
	var config net.ListenConfig
	listener, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("listen: %v", err)
	}
	server := grpc.NewServer()
	etcdserverpb.RegisterKVServer(server, i)
	etcdserverpb.RegisterMaintenanceServer(server, i)
	etcdserverpb.RegisterClusterServer(server, i)
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	t.Cleanup(func() {
		server.Stop()
		if err := <-served; err != nil {
			t.Errorf("imitate an etcd: %v", err)
		}
	})
	return "http://" + listener.Addr().String()
}

func (i *Imitation) header() *etcdserverpb.ResponseHeader {
	return &etcdserverpb.ResponseHeader{ClusterId: i.Cluster, MemberId: i.Cluster, Revision: 1}
}

// Status implements etcdserverpb.MaintenanceServer.
func (i *Imitation) Status(context.Context, *etcdserverpb.StatusRequest) (*etcdserverpb.StatusResponse, error) {
	return &etcdserverpb.StatusResponse{Header: i.header(), Version: version.Version, Leader: i.Cluster}, nil
}

// MemberList implements etcdserverpb.ClusterServer.
func (i *Imitation) MemberList(context.Context, *etcdserverpb.MemberListRequest) (*etcdserverpb.MemberListResponse, error) {
	return &etcdserverpb.MemberListResponse{Header: i.header()}, nil
}

// Range implements etcdserverpb.KVServer.
func (i *Imitation) Range(context.Context, *etcdserverpb.RangeRequest) (*etcdserverpb.RangeResponse, error) {
	return &etcdserverpb.RangeResponse{Header: i.header()}, nil
}

// Txn implements etcdserverpb.KVServer.
func (i *Imitation) Txn(context.Context, *etcdserverpb.TxnRequest) (*etcdserverpb.TxnResponse, error) {
	if i.Answer == nil {
		return nil, fmt.Errorf("unsupported transaction")
	}
	i.Answer.Header = i.header()
	return i.Answer, nil
}
