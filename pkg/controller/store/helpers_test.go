// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"errors"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apimachinery/pkg/types"

	"github.com/annex-dev/annex/pkg/storage/etcd/stores"
)

var epoch = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

const mebi = 1 << 20

// answer returns the status of a healthy member with a database of this size.
func answer(id uint64, size int64, change func(*clientv3.StatusResponse)) stores.EndpointStatus {
	status := &clientv3.StatusResponse{
		Header:  &etcdserverpb.ResponseHeader{MemberId: id},
		Version: "3.7.3", Leader: 1, DbSize: size, DbSizeInUse: size / 2, DbSizeQuota: 100 * mebi,
	}
	if change != nil {
		change(status)
	}
	return stores.EndpointStatus{Endpoint: "https://etcd-" + string(rune('0'+id)), Status: status}
}

func silence(id uint64) stores.EndpointStatus {
	return stores.EndpointStatus{Endpoint: "https://etcd-" + string(rune('0'+id)), Err: errors.New("refused")}
}

// cluster returns the snapshot of a cluster of three members.
func cluster(endpoints ...stores.EndpointStatus) *stores.Snapshot {
	return &stores.Snapshot{Endpoints: endpoints, Cluster: 0xc1, Members: &clientv3.MemberListResponse{Members: []*etcdserverpb.Member{
		{ID: 3, Name: "c"}, {ID: 1, Name: "a"}, {ID: 26, Name: ""},
	}}}
}

// refused changes a snapshot: requests of the Store are refused.
func refused(seen *stores.Snapshot, reason, message string) *stores.Snapshot {
	seen.Unavailable = &stores.UnavailableError{Store: "some", Reason: reason, Message: message}
	return seen
}

// marked changes a snapshot: the etcd has the mark of a Store.
func marked(seen *stores.Snapshot, store string, uid types.UID) *stores.Snapshot {
	seen.Mark = &stores.Mark{Store: store, UID: uid}
	return seen
}

// down returns the snapshot of an unreachable cluster.
func down() *stores.Snapshot {
	seen := refused(cluster(silence(1)), stores.ReasonUnreachable, "no endpoint answers: https://etcd-1: refused")
	seen.Members, seen.Cluster = nil, 0
	return seen
}

// connection is a Connection that a test can change.
type connection struct {
	mu       sync.Mutex
	seen     *stores.Snapshot
	asked    int
	claimErr error
	claims   []bool
	released int
}

func (c *connection) Snapshot() *stores.Snapshot {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked++
	seen := *c.seen
	return &seen
}

func (c *connection) Claim(_ context.Context, _ types.UID, adopt bool) (stores.Claim, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.claims = append(c.claims, adopt)
	return stores.Claim{Cluster: c.seen.Cluster, History: stores.History{Epoch: "new"}}, c.claimErr
}

func (c *connection) Release(context.Context, types.UID) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.released++
	return nil
}

func (c *connection) change(change func(*connection)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change(c)
}

func (c *connection) timesAsked() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.asked
}
