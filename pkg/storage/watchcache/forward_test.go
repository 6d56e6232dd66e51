// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package watchcache

import (
	"context"
	"errors"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/annex-dev/annex/pkg/test/expect"
)

// TestForward checks that a watch has the changed events, and ends with the one below and when it is stopped while
// nothing reads it.
func TestForward(t *testing.T) {
	t.Parallel()
	change := func(event watch.Event) (watch.Event, bool) {
		return watch.Event{Type: watch.Added, Object: event.Object}, event.Type != watch.Modified
	}
	events := func(from ...watch.EventType) *watch.FakeWatcher {
		below := watch.NewFakeWithChanSize(len(from), true)
		for _, kind := range from {
			below.Action(kind, &metav1.Status{})
		}
		return below
	}
	for name, open := range map[string]func(below watch.Interface) watch.Interface{
		"at once": func(below watch.Interface) watch.Interface { return below },
		"later": func(below watch.Interface) watch.Interface {
			return ForwardLater(t.Context(), func(context.Context) (watch.Interface, error) { return below, nil })
		},
	} {
		below := events(watch.Deleted, watch.Modified, watch.Deleted)
		forwarded := Forward(open(below), change)
		for range 2 {
			expect.Equal(t, watch.Added, (<-forwarded.ResultChan()).Type, name)
		}
		below.Stop()
		_, more := <-forwarded.ResultChan()
		expect.Equal(t, false, more, name+": more events after the end of the watch below")

		below = events(watch.Added, watch.Added, watch.Added, watch.Added)
		stopped := ForwardLater(t.Context(), func(context.Context) (watch.Interface, error) { return Forward(open(below), change), nil })
		stopped.Stop()
		for range stopped.ResultChan() { // it is closed
		}
	}
	failed := <-ForwardLater(t.Context(), func(context.Context) (watch.Interface, error) { return nil, errors.New("unknown") }).ResultChan()
	if failed.Type != watch.Error || !apierrors.IsInternalError(apierrors.FromObject(failed.Object)) {
		t.Errorf("a watch that cannot be opened has %v", failed)
	}
}
