// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package quarantine

import (
	"context"
	"fmt"
	"strconv"
	"sync"

	clientv3 "go.etcd.io/etcd/client/v3"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/klog/v2"
)

// resultsAhead is how many events a watch has at hand before they are read, as many as
// that of upstream's etcd3.
const resultsAhead = 100

// watched is a watch that has the values looked at which it may have failed at.
type watched struct {
	inner   watch.Interface
	results chan watch.Event
	stop    func()
	stopped chan struct{}
}

func newWatched(ctx context.Context, q *Quarantine, inner watch.Interface, key string, options storage.ListOptions) *watched {
	w := &watched{inner: inner, results: make(chan watch.Event, resultsAhead), stopped: make(chan struct{})}
	w.stop = sync.OnceFunc(func() {
		close(w.stopped)
		inner.Stop()
	})
	// What comes first, if not from a revision on, comes in the order of keys. Where it
	// ends is not known of every watch.
	ordered := options.SendInitialEvents == nil && options.ResourceVersion != "" && options.ResourceVersion != "0"
	seen, _ := strconv.ParseInt(options.ResourceVersion, 10, 64)
	unconverted := q.unconverted.Load()
	go func() {
		defer close(w.results)
		for event := range inner.ResultChan() {
			switch {
			case event.Type == watch.Error:
				event = q.failedAt(ctx, event, seen, q.unconverted.Load() != unconverted)
			case event.Type == watch.Bookmark && endsList(event):
				ordered, seen = true, revisionOf(event)
				if options.Recursive && q.isWhole(key) {
					q.sawAll()
				}
			case ordered:
				seen = max(seen, revisionOf(event))
			}
			w.send(ctx, event)
		}
	}()
	return w
}

// send hands on an event. What is there when the watch is stopped is still read, as
// far as there is room for it.
func (w *watched) send(ctx context.Context, event watch.Event) {
	select {
	case w.results <- event:
		return
	default:
	}
	select {
	case w.results <- event:
	case <-w.stopped: // the channel of inner is closed soon
	case <-ctx.Done():
	}
}

// ResultChan implements watch.Interface.
func (w *watched) ResultChan() <-chan watch.Event { return w.results }

// Stop implements watch.Interface.
func (w *watched) Stop() { w.stop() }

// endsList reports whether a watch that began with what there is has sent all of that.
func endsList(event watch.Event) bool {
	ends, err := storage.HasInitialEventsEndBookmarkAnnotation(event.Object)
	return err == nil && ends
}

func revisionOf(event watch.Event) int64 {
	object, err := meta.Accessor(event.Object)
	if err != nil {
		return 0
	}
	revision, _ := strconv.ParseInt(object.GetResourceVersion(), 10, 64)
	return revision
}

// failedAt looks for the value that a watch failed at, having seen all up to a
// revision. If one is found, a watch that goes on from there gets past it now. If
// not, or if it was known, only a list gets past it: it was replaced since. After an
// internal error clients would try the same again, after others they list. Neither helps
// if it may have failed at a conversion.
func (q *Quarantine) failedAt(ctx context.Context, failure watch.Event, seen int64, unconverted bool) watch.Event {
	status, ok := failure.Object.(*metav1.Status)
	if !ok || status.Reason != metav1.StatusReasonInternalError && status.Reason != metav1.StatusReasonStoreReadError {
		return failure
	}
	news, decided, err := q.search(ctx, seen)
	switch {
	case err != nil:
		klog.FromContext(ctx).V(2).Info("What a watch failed at was not found", "resource", q.config.Resource, "err", err)
	case !news && decided && !unconverted && status.Reason == metav1.StatusReasonInternalError:
		gone := apierrors.NewResourceExpired(fmt.Sprintf("an object could not be read at the time: %s", status.Message))
		return watch.Event{Type: watch.Error, Object: &gone.ErrStatus}
	}
	return failure
}

// search looks at all values that were written after a revision, and keeps apart what
// is damaged.
func (q *Quarantine) search(ctx context.Context, after int64) (news, decided bool, err error) {
	written, err := q.config.KV.Get(ctx, q.config.Prefix, clientv3.WithPrefix(), clientv3.WithKeysOnly(), clientv3.WithMinModRev(after+1))
	if err != nil {
		return false, false, fmt.Errorf("listing the keys of %s: %w", q.config.Resource, err)
	}
	keys := make([]string, 0, len(written.Kvs))
	for _, kv := range written.Kvs {
		keys = append(keys, string(kv.Key))
	}
	result, err := q.look(ctx, keys)
	if err != nil || len(result.damaged) == 0 {
		return false, result.decided, err
	}
	_, news, err = q.keepApart(ctx, result.damaged)
	return news, result.decided, err
}
