// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package limits

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/kubernetes"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/annex-dev/annex/pkg/storage/etcd/embeddedetcd/etcdtest"
	"github.com/annex-dev/annex/pkg/storage/etcd/etcdkv"
	"github.com/annex-dev/annex/pkg/storage/etcd/keys"
	"github.com/annex-dev/annex/pkg/storage/etcd/usage"
	"github.com/annex-dev/annex/pkg/test/expect"
)

const (
	prefix   = "/annex"
	patience = 60 * time.Second
)

var (
	widgets = schema.GroupResource{Group: "example.com", Resource: "widgets"}
	root    = keys.Objects(prefix, widgets)
)

// store is an etcd, and the limits that every replica knows of.
type store struct {
	endpoint string
	limits   atomic.Pointer[Limits]
}

func startStore(t testing.TB, limits Limits) *store {
	t.Helper()
	s := &store{endpoint: etcdtest.Start(t, nil).Endpoint()}
	s.limits.Store(&limits)
	return s
}

// replica writes below limits, with a connection and a count of its own.
type replica struct {
	*kubernetes.Client
	usage *usage.Tracker
	line  *faultyKV
}

func (s *store) replica(t testing.TB) *replica {
	t.Helper()
	client := etcdtest.Dial(t, s.endpoint)
	line := &faultyKV{KV: client.KV, watcher: client.Watcher}
	tracker := usage.NewTracker(line, prefix, nil)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { tracker.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	var release func()
	client.KV, release = KV(Config{KV: line, Prefix: prefix, Resource: widgets, Usage: tracker, Limits: func() Limits { return *s.limits.Load() }})
	t.Cleanup(release)
	return &replica{Client: client, usage: tracker, line: line}
}

// put writes an object at a revision and returns the one it is then at.
func (r *replica) put(ctx context.Context, name string, size int, at int64) (int64, error) {
	response, err := r.Kubernetes.OptimisticPut(ctx, root+name, []byte(strings.Repeat("v", size)), at, kubernetes.PutOptions{GetOnFailure: true})
	switch {
	case err != nil:
		return 0, err
	case !response.Succeeded:
		return 0, fmt.Errorf("write %s: %w", name, errConflict)
	}
	return response.Revision, nil
}

func (r *replica) delete(ctx context.Context, name string, at int64) error {
	response, err := r.Kubernetes.OptimisticDelete(ctx, root+name, at, kubernetes.DeleteOptions{GetOnFailure: true})
	if err == nil && !response.Succeeded {
		return fmt.Errorf("delete %s: %w", name, errConflict)
	}
	return err
}

var (
	errConflict = errors.New("it is at another revision")
	errCut      = errors.New("the connection was cut")
)

// faultyKV is a connection that, while it is bad, loses requests and answers, executes writes
// after the time-out, and delays watch events.
type faultyKV struct {
	clientv3.KV
	watcher clientv3.Watcher
	bad     atomic.Bool
	late    sync.WaitGroup
}

// Watch implements usage.Etcd.
func (l *faultyKV) Watch(ctx context.Context, key string, options ...clientv3.OpOption) clientv3.WatchChan {
	responses := l.watcher.Watch(ctx, key, options...)
	return etcdkv.Watch(ctx, func(send func(clientv3.WatchResponse) bool) {
		for response := range responses {
			if l.bad.Load() {
				pause(ctx, time.Duration(rand.IntN(20))*time.Millisecond)
			}
			if !send(response) {
				return
			}
		}
	})
}

// RequestProgress implements usage.Etcd.
func (l *faultyKV) RequestProgress(ctx context.Context) error { return l.watcher.RequestProgress(ctx) }

// Txn implements clientv3.KV.
func (l *faultyKV) Txn(ctx context.Context) clientv3.Txn { return etcdkv.New(nil, l.commit).Txn(ctx) }

func (l *faultyKV) commit(ctx context.Context, op clientv3.Op) (none clientv3.OpResponse, err error) {
	commit := func() (clientv3.OpResponse, error) { return l.Do(context.WithoutCancel(ctx), op) }
	fate := 100
	if l.bad.Load() {
		fate = rand.IntN(30)
	}
	switch fate {
	case 0, 1:
		return none, fmt.Errorf("before the request arrived: %w", errCut)
	case 2, 3:
		if _, err := commit(); err != nil {
			return none, err
		}
		return none, fmt.Errorf("before the answer arrived: %w", errCut)
	case 4, 5:
		l.late.Go(func() {
			pause(ctx, time.Duration(rand.IntN(30))*time.Millisecond)
			_, _ = commit()
		})
		return none, fmt.Errorf("long before it was done: %w", errCut)
	}
	return commit()
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// history holds the contents of a Store at each revision.
type history struct {
	sizes      map[string]int64
	whole      usage.Usage
	namespaces map[string]usage.Usage
}

// replay goes through all that was ever written, and reports every revision with
// more than the limits.
func (s *store) replay(t *testing.T, limits Limits) *history {
	t.Helper()
	client := etcdtest.Dial(t, s.endpoint)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	end, err := client.Put(ctx, root+"end-of-history", "")
	expect.NoError(t, err)
	h := &history{sizes: map[string]int64{}, namespaces: map[string]usage.Usage{}}
	for r := range client.Watch(ctx, root, clientv3.WithPrefix(), clientv3.WithRev(1)) {
		for _, event := range r.Events {
			if event.Kv.ModRevision == end.Header.Revision {
				return h
			}
			h.add(t, event, limits)
		}
	}
	t.Fatalf("the history ended early: %v", ctx.Err())
	return nil
}

func (h *history) add(t *testing.T, event *clientv3.Event, limits Limits) {
	t.Helper()
	key := string(event.Kv.Key)
	size, existed := h.sizes[key]
	change := usage.Usage{Bytes: -size}
	if existed {
		change.Objects = -1
	}
	delete(h.sizes, key)
	if event.Type == clientv3.EventTypePut {
		h.sizes[key] = int64(len(event.Kv.Value))
		change.Objects++
		change.Bytes += h.sizes[key]
	}
	namespace, _ := objectOf(strings.TrimPrefix(key, root))
	of := plus(h.namespaces[namespace], change)
	h.whole, h.namespaces[namespace] = plus(h.whole, change), of
	if change.Objects <= 0 && change.Bytes <= 0 {
		return // what shrinks may be over a limit
	}
	for _, why := range []string{limits.Resource.over(h.whole, change), limits.Namespace.over(of, change)} {
		if why != "" {
			t.Errorf("revision %d, %s: %s", event.Kv.ModRevision, key, why)
		}
	}
}

// over returns what a change to the current usage exceeded.
func (l Limit) over(now, change usage.Usage) string {
	return l.exceeded(usage.Usage{Objects: now.Objects - change.Objects, Bytes: now.Bytes - change.Bytes}, change)
}

func plus(a, b usage.Usage) usage.Usage {
	return usage.Usage{Objects: a.Objects + b.Objects, Bytes: a.Bytes + b.Bytes}
}
