// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/controller/internal/pace"
)

func TestReconcile(t *testing.T) {
	t.Parallel()
	gone := apierrors.NewNotFound(hostingv1alpha1.Resource("stores"), "default")
	conflict := apierrors.NewConflict(hostingv1alpha1.Resource("stores"), "default", errors.New("changed"))
	current := func() *hostingv1alpha1.Store {
		s := &hostingv1alpha1.Store{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
		setObserved(&s.Status, cluster(answer(1, 10*mebi, nil)), 0, epoch)
		s.Status.Objects = 3
		return s
	}
	fresh := func() *hostingv1alpha1.Store {
		return &hostingv1alpha1.Store{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
	}

	for name, tc := range map[string]struct {
		store       *hostingv1alpha1.Store
		getErr      error
		writeErr    error
		seen        observation
		unknown     bool
		lookedAgo   time.Duration
		wantErr     string
		wantRequeue time.Duration
		wantLooks   int
		wantWrites  int
	}{
		"gone":                            {getErr: gone},
		"not read":                        {getErr: errors.New("broken"), wantErr: "reading store default"},
		"new":                             {store: fresh(), seen: cluster(answer(1, 10*mebi, nil)), wantLooks: 1, wantWrites: 1, wantRequeue: refreshInterval},
		"the same":                        {store: current(), seen: cluster(answer(1, 10*mebi, nil)), wantLooks: 1, wantRequeue: refreshInterval},
		"objects not known":               {store: current(), seen: cluster(answer(1, 10*mebi, nil)), unknown: true, wantLooks: 1, wantRequeue: refreshInterval},
		"looked at just now":              {store: fresh(), lookedAgo: 300 * time.Millisecond, wantRequeue: 700 * time.Millisecond},
		"down":                            {store: current(), seen: cluster(silence(1)), wantLooks: 1, wantWrites: 1, wantRequeue: troubleInterval},
		"down, and so cannot be written":  {store: current(), seen: cluster(silence(1)), writeErr: conflict, wantLooks: 1, wantWrites: 1, wantRequeue: troubleInterval},
		"cannot be written all the same":  {store: fresh(), seen: cluster(answer(1, 10*mebi, nil)), writeErr: conflict, wantErr: "writing status of store default", wantLooks: 1, wantWrites: 1, wantRequeue: refreshInterval},
		"gone while it was being written": {store: fresh(), seen: cluster(answer(1, 10*mebi, nil)), writeErr: gone, wantLooks: 1, wantWrites: 1, wantRequeue: refreshInterval},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			now := epoch.Add(-tc.lookedAgo)
			p := pace.New(minInterval, func() time.Time { return now })
			if tc.lookedAgo > 0 {
				p.Mark("default")
				now = epoch
			}
			looks, writes := 0, 0
			r := &reconciler{
				getStore:     func(string) (*hostingv1alpha1.Store, error) { return tc.store, tc.getErr },
				updateStatus: func(context.Context, *hostingv1alpha1.Store) error { writes++; return tc.writeErr },
				observe:      func(context.Context) observation { looks++; return tc.seen },
				objects:      func() (int64, bool) { return 3, !tc.unknown },
				pace:         p,
				now:          func() time.Time { return epoch },
				trouble:      map[string]string{},
			}
			result, err := r.reconcile(t.Context(), "default")
			if (err != nil) != (tc.wantErr != "") || err != nil && !strings.Contains(err.Error(), tc.wantErr) {
				t.Errorf("error %v, want one with %q", err, tc.wantErr)
			}
			if result.RequeueAfter != tc.wantRequeue {
				t.Errorf("requeued after %s, want %s", result.RequeueAfter, tc.wantRequeue)
			}
			if looks != tc.wantLooks || writes != tc.wantWrites {
				t.Errorf("looked %d times and wrote %d times, want %d and %d", looks, writes, tc.wantLooks, tc.wantWrites)
			}
		})
	}
}

func TestAnEtcdNotGivenTimeIsNotDown(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	r := &reconciler{
		getStore: func(string) (*hostingv1alpha1.Store, error) {
			return &hostingv1alpha1.Store{ObjectMeta: metav1.ObjectMeta{Name: "default"}}, nil
		},
		updateStatus: func(context.Context, *hostingv1alpha1.Store) error {
			t.Error("a store was reported down because annex stops")
			return nil
		},
		observe: func(context.Context) observation { cancel(); return cluster(silence(1)) },
		pace:    pace.New(minInterval, time.Now),
		now:     time.Now,
		trouble: map[string]string{},
	}
	if _, err := r.reconcile(ctx, "default"); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want that the context is done", err)
	}
}
