// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package stores

import (
	"context"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apimachinery/pkg/types"

	"github.com/annex-dev/annex/pkg/storage/etcd/externaletcd"
	"github.com/annex-dev/annex/pkg/storage/etcd/keys"
	"github.com/annex-dev/annex/pkg/storage/layer/revision"
)

// Snapshot is the result of a probe.
type Snapshot struct {
	// UID and Generation identify the API object that configured the probe; the UID
	// is empty for the Store "default".
	UID        types.UID
	Generation int64
	// Unavailable is the reason for refusing requests, nil if they pass.
	Unavailable *UnavailableError
	// Endpoints holds an answer or an error for each endpoint, in order.
	Endpoints []EndpointStatus
	// Members and MembersErr are the answer of the cluster as a whole, which needs a quorum; an endpoint
	// answers without.
	Members    *clientv3.MemberListResponse
	MembersErr error
	// Cluster is the ID that all endpoints which answered agree on, else 0.
	Cluster uint64
	// Mark is the mark below the prefix, nil if there is none or it cannot be parsed.
	Mark *Mark
	// History is the newest point of etcd's history that annex knows, while requests pass. The controller
	// persists it, so that a rollback is detected after a restart too.
	History History
	// RoundTrip is the duration of a quorum read.
	RoundTrip time.Duration
	// NoSpace is set if etcd refuses writes because it is full, or annex because the volume is.
	NoSpace bool
	// Disk is the volume of the etcd inside the process, and LowDisk is set if it is almost full.
	Disk    Disk
	LowDisk bool
	// Alarms are etcd's.
	Alarms []string
	// CertificateExpires is the expiry of the client certificate; zero without one.
	CertificateExpires time.Time
	// SecretErr is the error of reading the Secret, while its previous credentials are still in use.
	SecretErr error
	// Reclaiming describes the attempt to free space, empty without one.
	Reclaiming string

	// rawMark is the stored mark, empty if there is none, and markErr the error of parsing it.
	rawMark string
	markErr error
	// claimErr is the error of claiming the prefix.
	claimErr *UnavailableError
	// revision is etcd's. floor is the highest revision, and checkpoint the checkpoint, that were known
	// before the probe.
	revision, floor, checkpoint int64
	// offset is the highest revision offset, and offsetErr the error of reading it.
	offset    int64
	offsetErr error
	// checkpoints are the revisions of the checkpoints, by key.
	checkpoints map[string]int64
	// readErr is the error of a quorum read.
	readErr error
	// notEtcd is set if the server only imitates an etcd.
	notEtcd error
	// accepted means that an endpoint accepts connections, although none answers requests.
	accepted bool
}

// EndpointStatus is the status of one endpoint.
type EndpointStatus struct {
	Endpoint string
	Status   *clientv3.StatusResponse
	Err      error
}

// observe requests the state of all endpoints and of the cluster concurrently. It sends no request
// that etcd would log, such as for the list of alarms: the status of an endpoint contains them too.
// It gives up early if no endpoint accepts connections, unless wait is set.
func (c *connection) observe(ctx context.Context, wait bool) *Snapshot {
	seen := &Snapshot{Endpoints: make([]EndpointStatus, len(c.target.endpoints))}
	var asking, doubting sync.WaitGroup
	ctx, cancel := context.WithCancel(ctx)
	defer doubting.Wait()
	defer cancel()
	doubting.Go(func() {
		if !wait && c.isUnreachable(ctx) {
			cancel()
		}
	})
	for i, endpoint := range c.target.endpoints {
		asking.Go(func() {
			status, err := c.client.Status(ctx, endpoint)
			seen.Endpoints[i] = EndpointStatus{Endpoint: endpoint, Status: status, Err: err}
		})
	}
	asking.Go(func() { seen.Members, seen.MembersErr = c.client.MemberList(ctx) })
	asking.Go(func() { c.readMark(ctx, seen) })
	if !c.isEtcd {
		asking.Go(func() { seen.notEtcd = externaletcd.CheckTransactions(ctx, c.client) })
	}
	asking.Wait()
	c.isEtcd = seen.notEtcd == nil && seen.readErr == nil
	seen.summarize()
	return seen
}

// isUnreachable reports, after dialCheckDelay, whether no endpoint can be reached, which gRPC
// does not report: it retries until the time-out.
func (c *connection) isUnreachable(ctx context.Context) bool {
	pause(ctx, dialCheckDelay, nil)
	deadline := time.Now().Add(explainTimeout)
	ctx, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	var probing sync.WaitGroup
	var answers atomic.Bool
	for _, endpoint := range c.target.endpoints {
		probing.Go(func() {
			if externaletcd.Probe(ctx, endpoint, c.tls()) == nil {
				answers.Store(true)
			}
		})
	}
	probing.Wait()
	// A connection may time out just before ctx does.
	return !answers.Load() && ctx.Err() == nil && time.Now().Before(deadline)
}

// readMark reads annex's own keys, which needs a quorum.
func (c *connection) readMark(ctx context.Context, seen *Snapshot) {
	prefix := c.target.prefix
	asked := time.Now()
	response, err := c.client.Txn(ctx).Then(
		clientv3.OpGet(keys.Store(prefix)),
		clientv3.OpGet(keys.Checkpoints(prefix), clientv3.WithPrefix(), clientv3.WithKeysOnly()),
		clientv3.OpGet(keys.Revisions(prefix), clientv3.WithPrefix()),
	).Commit()
	seen.RoundTrip = time.Since(asked)
	if err != nil {
		seen.readErr = err
		return
	}
	seen.Cluster, seen.revision = response.Header.GetClusterId(), response.Header.GetRevision()
	read := func(i int) []*mvccpb.KeyValue { return response.Responses[i].GetResponseRange().GetKvs() }
	seen.Mark, seen.rawMark, seen.markErr = nil, "", nil
	for _, kv := range read(0) {
		seen.rawMark = string(kv.Value)
		seen.Mark, seen.markErr = parseMark(kv.Value)
	}
	seen.checkpoints = map[string]int64{}
	for _, kv := range read(1) {
		seen.checkpoints[string(kv.Key)] = kv.ModRevision
	}
	seen.offset, seen.offsetErr = revision.HighestOf(read(2))
}

// summarize combines the answers of the endpoints.
func (s *Snapshot) summarize() {
	for _, answer := range s.Endpoints {
		if answer.Err != nil {
			continue
		}
		if found := answer.Status.Header.GetClusterId(); s.readErr == nil && found != s.Cluster {
			s.Cluster = 0
		}
		for _, text := range answer.Status.Errors {
			for _, alarm := range []string{"NOSPACE", "CORRUPT"} {
				if strings.Contains(text, alarm) {
					s.addAlarm(alarm)
				}
			}
		}
	}
}

func (s *Snapshot) addAlarm(alarm string) {
	if s.hasAlarm(alarm) {
		return
	}
	s.Alarms = append(s.Alarms, alarm)
	s.NoSpace = s.NoSpace || alarm == "NOSPACE"
}

func (s *Snapshot) hasAlarm(alarm string) bool { return slices.Contains(s.Alarms, alarm) }

// Largest returns the status of the member with the largest database, which reaches the quota
// first; nil if no member answered.
func (s *Snapshot) Largest() *clientv3.StatusResponse {
	var largest *clientv3.StatusResponse
	for _, answer := range s.Endpoints {
		if answer.Err == nil && (largest == nil || answer.Status.DbSize > largest.DbSize) {
			largest = answer.Status
		}
	}
	return largest
}
