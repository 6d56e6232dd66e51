// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package objectsize

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/annex-dev/annex/pkg/test/expect"
)

func as(ctx context.Context, name string) context.Context {
	return request.WithUser(ctx, &user.DefaultInfo{Name: name})
}

// TestBudget lets fifty users write and update the largest objects concurrently.
func TestBudget(t *testing.T) {
	t.Parallel()
	budget := NewBudget(16*mib, time.Minute)
	var running, most atomic.Int64
	work := func() {
		now := running.Add(1)
		defer running.Add(-1)
		for before := most.Load(); now > before && !most.CompareAndSwap(before, now); before = most.Load() {
		}
		runtime.Gosched()
	}
	var writers sync.WaitGroup
	for i := range 50 {
		caller := &user.DefaultInfo{Name: fmt.Sprint(i)}
		writers.Go(func() {
			reservation := budget.Reservation(caller)
			defer reservation.Release()
			err := reservation.Share(t.Context(), 16*mib)
			if err == nil {
				err = reservation.Work(t.Context(), 16*mib)
			}
			if err != nil {
				t.Error(err)
				return
			}
			work()
			reservation.Written()
		})
		writers.Go(func() {
			release, err := budget.Acquire(request.WithUser(t.Context(), caller), 16*mib)
			if err != nil {
				t.Error(err)
				return
			}
			defer release()
			work()
		})
	}
	writers.Wait()
	if most.Load() > workingObjects {
		t.Errorf("%d objects of 16 MiB were processed at once, want at most %d", most.Load(), workingObjects)
	}
	if len(budget.users) != 0 {
		t.Errorf("%d users without requests have shares", len(budget.users))
	}
}

// TestShares fills the share of a user with slow bodies.
func TestShares(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		slow, other string
		shared      bool
	}{
		"another user":          {slow: "ann", other: "bob"},
		"the same user":         {slow: "ann", other: "ann", shared: true},
		"same namespace":        {slow: "system:serviceaccount:one:a", other: "system:serviceaccount:one:b", shared: true},
		"two namespaces":        {slow: "system:serviceaccount:one:a", other: "system:serviceaccount:two:a"},
		"not a service account": {slow: "system:serviceaccount:one", other: "system:serviceaccount:one:b"},
		"both anonymous":        {slow: "", other: "", shared: true},
		"one anonymous":         {slow: "", other: "ann"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			budget := NewBudget(4*mib, 10*time.Millisecond)
			for range userObjects {
				reservation := budget.Reservation(&user.DefaultInfo{Name: test.slow})
				defer reservation.Release()
				expect.NoError(t, reservation.Share(t.Context(), 4*mib))
			}
			release, err := budget.Acquire(as(t.Context(), test.other), mib)
			if (err != nil) != test.shared {
				t.Errorf("%q beside %q: got %v, want it refused: %t", test.other, test.slow, err, test.shared)
			}
			if err == nil {
				release()
			}
			for range 1000 {
				_, err = budget.Acquire(as(t.Context(), test.other), HeavyBytes-1)
				expect.NoError(t, err, "small object")
			}
		})
	}
}

// TestReserve occupies the budget with users that are not administrators.
func TestReserve(t *testing.T) {
	t.Parallel()
	budget := NewBudget(4*mib, 10*time.Millisecond)
	receive := func(caller user.Info, bytes, weight int64) error {
		reservation := budget.Reservation(caller)
		t.Cleanup(reservation.Release)
		if err := reservation.Share(t.Context(), bytes); err != nil {
			return err
		}
		if err := reservation.Arrive(t.Context(), bytes); err != nil {
			return err
		}
		if weight == 0 {
			return nil
		}
		return reservation.Work(t.Context(), weight)
	}
	expect.NoError(t, receive(&user.DefaultInfo{Name: "values"}, mib, 100*mib), "an object of many values in a budget without others")
	for i := range arrivingObjects {
		expect.NoError(t, receive(&user.DefaultInfo{Name: fmt.Sprint(i)}, 4*mib, 0), "body %d that arrives", i)
	}
	bob, root := &user.DefaultInfo{Name: "bob"}, &user.DefaultInfo{Name: "root", Groups: []string{user.SystemPrivilegedGroup}}
	if err := receive(bob, mib, mib); !apierrors.IsTooManyRequests(err) {
		t.Errorf("bob's body: got %v, want that other objects are being written", err)
	}
	if _, err := budget.Acquire(request.WithUser(t.Context(), bob), mib); !apierrors.IsTooManyRequests(err) {
		t.Errorf("bob's patch: got %v, want that other objects are being written", err)
	}
	expect.NoError(t, receive(root, 4*mib, 4*mib), "an administrator's body")
}

// TestGrowingShare lets two requests of a user arrive, both of which weigh more than what has arrived.
func TestGrowingShare(t *testing.T) {
	t.Parallel()
	budget := NewBudget(4*mib, time.Minute)
	ann := &user.DefaultInfo{Name: "ann"}
	var writers sync.WaitGroup
	for range userObjects {
		reservation := budget.Reservation(ann)
		expect.NoError(t, reservation.Share(t.Context(), 4*mib))
		writers.Go(func() {
			defer reservation.Release()
			if err := reservation.Work(t.Context(), 100*mib); err != nil {
				t.Error(err)
			}
		})
	}
	writers.Wait()
}
