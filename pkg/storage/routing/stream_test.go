// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package routing

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/annex-dev/annex/pkg/storage/etcd/embeddedetcd/etcdtest"
	"github.com/annex-dev/annex/pkg/test/expect"
)

// withoutPrevKV is an etcd that does not send previous values.
type withoutPrevKV struct{ clientv3.Watcher }

func (f withoutPrevKV) Watch(ctx context.Context, key string, options ...clientv3.OpOption) clientv3.WatchChan {
	answers := f.Watcher.Watch(ctx, key, options...)
	forgotten := make(chan clientv3.WatchResponse)
	go func() {
		defer close(forgotten)
		for answer := range answers {
			for _, event := range answer.Events {
				event.PrevKv = nil
			}
			select {
			case forgotten <- answer:
			case <-ctx.Done():
			}
		}
	}()
	return forgotten
}

// TestWatchWithoutPreviousValues: etcd sends events before it has recorded that the watch needs
// previous values.
func TestWatchWithoutPreviousValues(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.Start(t, nil).Client()
	for _, value := range []string{"1", "2", "3"} {
		_, err := etcd.Put(t.Context(), "/things/a", value)
		expect.NoError(t, err)
	}
	_, err := etcd.Delete(t.Context(), "/things/a")
	expect.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	events := newStream(withoutPrevKV{etcd}, etcd, "things", &latest{}).Watch(ctx, "/things/", clientv3.WithPrefix(), clientv3.WithPrevKV(), clientv3.WithRev(1))
	var got []string
	for answer := range events {
		for _, event := range answer.Events {
			before := "nothing"
			if event.PrevKv != nil {
				before = string(event.PrevKv.Value)
			}
			got = append(got, fmt.Sprintf("%s %s after %s", event.Type, event.Kv.Value, before))
		}
		if len(got) == 4 {
			break
		}
	}
	if diff := cmp.Diff([]string{"PUT 1 after nothing", "PUT 2 after 1", "PUT 3 after 2", "DELETE  after 3"}, got); diff != "" {
		t.Errorf("watched (-want +got):\n%s", diff)
	}
}

// cancelledByReason is an etcd that gives the end of a watch's context as the reason of its end.
type cancelledByReason struct{ clientv3.Watcher }

func (cancelledByReason) Watch(ctx context.Context, _ string, _ ...clientv3.OpOption) clientv3.WatchChan {
	answers := make(chan clientv3.WatchResponse, 1)
	context.AfterFunc(ctx, func() {
		answers <- clientv3.WatchResponse{Canceled: true, CancelReason: ctx.Err().Error()}
		close(answers)
	})
	return answers
}

// TestCancelledWatch: etcd reports the end of a context as the failure of a watch that it has just
// received.
func TestCancelledWatch(t *testing.T) {
	t.Parallel()
	for range 100 {
		ctx, cancel := context.WithCancel(t.Context())
		events := newStream(cancelledByReason{}, nil, "things", &latest{}).Watch(ctx, "/things/")
		cancel()
		if answer, open := <-events; open {
			t.Fatalf("a watch that was cancelled got %+v (error %v)", answer, answer.Err())
		}
	}
}
