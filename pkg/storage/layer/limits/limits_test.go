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

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/kubernetes"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/storage/etcd/embeddedetcd/etcdtest"
	"github.com/annex-dev/annex/pkg/storage/etcd/usage"
	"github.com/annex-dev/annex/pkg/test/expect"
)

func list(objects, storage string) hostingv1alpha1.ResourceList {
	list := hostingv1alpha1.ResourceList{}
	if objects != "" {
		list[hostingv1alpha1.ResourceObjects] = resource.MustParse(objects)
	}
	if storage != "" {
		list[hostingv1alpha1.ResourceStorage] = resource.MustParse(storage)
	}
	return list
}

var generation atomic.Int64

func limitsOf(whole, namespace hostingv1alpha1.ResourceList) Limits {
	return Of(&hostingv1alpha1.HostedResource{
		ObjectMeta: metav1.ObjectMeta{Generation: generation.Add(1)},
		Spec:       hostingv1alpha1.HostedResourceSpec{Limits: whole, NamespaceLimits: namespace},
	})
}

// TestManyWritersReachTheLimitExactly lets writers of two replicas create until all
// are refused.
func TestManyWritersReachTheLimitExactly(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		limits        Limits
		objects, size int64
	}{
		"objects":              {limits: limitsOf(list("60", ""), nil), objects: 60, size: 1},
		"objects of namespace": {limits: limitsOf(nil, list("20", "")), objects: 60, size: 1},
		"bytes":                {limits: limitsOf(list("", "1007"), nil), objects: 50, size: 20},
		"bytes of namespace":   {limits: limitsOf(nil, list("", "407")), objects: 60, size: 20},
		"the lowest counts":    {limits: limitsOf(list("30", "1Ki"), list("20", "10Ki")), objects: 30, size: 20},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			s := startStore(t, tc.limits)
			var writers sync.WaitGroup
			for r := range 2 {
				replica := s.replica(t)
				for w := range 6 {
					writers.Go(func() {
						namespace := fmt.Sprintf("ns-%d", w%3)
						for i := 0; ; i++ {
							_, err := replica.put(ctx, fmt.Sprintf("%s/%d-%d-%d", namespace, r, w, i), int(tc.size), 0)
							if apierrors.IsForbidden(err) {
								return
							}
							if err != nil {
								t.Error(err)
								return
							}
						}
					})
				}
			}
			writers.Wait()
			if got := s.replay(t, tc.limits).whole.Objects; got != tc.objects {
				t.Errorf("%d objects were made, want %d", got, tc.objects)
			}
		})
	}
}

// TestSimulation has replicas with bad connections create, change and delete at
// random. At no revision there may be more than the limits, and in the end they can
// be reached exactly.
func TestSimulation(t *testing.T) {
	t.Parallel()
	for name, limits := range map[string]Limits{
		"objects":    limitsOf(list("12", ""), list("6", "")),
		"bytes":      limitsOf(list("", "600"), list("", "300")),
		"everything": limitsOf(list("12", "600"), list("6", "300")),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			s := startStore(t, limits)
			var writers sync.WaitGroup
			var replicas []*replica
			for range 3 {
				replica := s.replica(t)
				replica.line.bad.Store(true)
				replicas = append(replicas, replica)
				for range 4 {
					writers.Go(func() {
						for range 60 {
							act(ctx, t, replica)
						}
					})
				}
			}
			writers.Wait()
			for _, replica := range replicas {
				replica.line.late.Wait()
				replica.line.bad.Store(false)
			}
			fill(ctx, t, replicas[0], limits)
			h := s.replay(t, limits)
			if room := limits.Resource.exceeded(h.whole, usage.Usage{Objects: 1, Bytes: 1}); room == "" {
				t.Errorf("it was refused to fill %+v up to %+v", h.whole, limits.Resource)
			}
		})
	}
}

// act does something to one of a few objects.
func act(ctx context.Context, t *testing.T, r *replica) {
	name := fmt.Sprintf("ns-%d/%d", rand.IntN(3), rand.IntN(12))
	found, err := r.KV.Get(ctx, root+name)
	if err != nil {
		t.Error(err)
		return
	}
	var at int64
	if len(found.Kvs) > 0 {
		at = found.Kvs[0].ModRevision
	}
	if at != 0 && rand.IntN(3) == 0 {
		err = r.delete(ctx, name, at)
	} else {
		_, err = r.put(ctx, name, 1+rand.IntN(100), at)
	}
	if err != nil && !errors.Is(err, errConflict) && !errors.Is(err, errCut) && !apierrors.IsForbidden(err) {
		t.Errorf("%s: %v", name, err)
	}
}

// fill makes the smallest objects there are until there is no room.
func fill(ctx context.Context, t *testing.T, r *replica, limits Limits) {
	t.Helper()
	for namespace := range 20 {
		for i := 0; ; i++ {
			_, err := r.put(ctx, fmt.Sprintf("full-%d/%d", namespace, i), 1, 0)
			if apierrors.IsForbidden(err) {
				break
			}
			expect.NoError(t, err)
		}
	}
}

func TestRefusal(t *testing.T) {
	t.Parallel()
	s := startStore(t, limitsOf(list("2", "100"), list("1", "60")))
	r := s.replica(t)
	mustPut(t, r, "a/1", 40, 0)
	for _, tc := range []struct {
		name string
		size int
		want string
	}{
		{"a/2", 10, `widgets.example.com "2" is forbidden: exceeded the limits of hostedresource widgets.example.com in namespace a, ` +
			`requested: objects=1, used: objects=1, limited: objects=1`},
		{"a/2", 30, `widgets.example.com "2" is forbidden: exceeded the limits of hostedresource widgets.example.com in namespace a, ` +
			`requested: objects=1,storage=1Ki, used: objects=1,storage=1Ki, limited: objects=1,storage=60`},
		{"b/1", 2048, `widgets.example.com "1" is forbidden: exceeded the limits of hostedresource widgets.example.com, ` +
			`requested: storage=2Ki, used: storage=1Ki, limited: storage=100`},
	} {
		if _, err := r.put(t.Context(), tc.name, tc.size, 0); !apierrors.IsForbidden(err) || err.Error() != tc.want {
			t.Errorf("%s of %d bytes: got\n%v\nwant\n%s", tc.name, tc.size, err, tc.want)
		}
	}
}

func mustPut(t *testing.T, r *replica, name string, size int, at int64) int64 {
	t.Helper()
	revision, err := r.put(t.Context(), name, size, at)
	expect.NoError(t, err)
	return revision
}

// TestOverTheLimit sets limits below what there is.
func TestOverTheLimit(t *testing.T) {
	t.Parallel()
	s := startStore(t, limitsOf(nil, nil))
	r := s.replica(t)
	first, second := mustPut(t, r, "a/1", 100, 0), mustPut(t, r, "a/2", 100, 0)
	over := limitsOf(list("1", "50"), nil)
	s.limits.Store(&over)

	if _, err := r.put(t.Context(), "a/3", 1, 0); !apierrors.IsForbidden(err) {
		t.Errorf("another object: %v", err)
	}
	if _, err := r.put(t.Context(), "a/1", 101, first); !apierrors.IsForbidden(err) {
		t.Errorf("an update that grows: %v", err)
	}
	first = mustPut(t, r, "a/1", 100, first)
	first = mustPut(t, r, "a/1", 20, first)
	if _, err := r.put(t.Context(), "a/1", 21, first); !apierrors.IsForbidden(err) {
		t.Errorf("an update that grows again: %v", err)
	}
	expect.NoError(t, r.delete(t.Context(), "a/2", second))
	first = mustPut(t, r, "a/1", 50, first)
	if _, err := r.put(t.Context(), "a/1", 51, first); !apierrors.IsForbidden(err) {
		t.Errorf("an update beyond the limit: %v", err)
	}

	none := limitsOf(nil, nil)
	s.limits.Store(&none)
	mustPut(t, r, "a/1", 500, first)
	mustPut(t, r, "a/3", 1, 0)
}

// TestDeletedObjectsFreeRoomAtOnce creates right after a delete that the count may not know of.
func TestDeletedObjectsFreeRoomAtOnce(t *testing.T) {
	t.Parallel()
	s := startStore(t, limitsOf(list("1", ""), nil))
	first, second := s.replica(t), s.replica(t)
	second.line.bad.Store(true) // late, at least
	at := mustPut(t, first, "a/0", 1, 0)
	for i := range 20 {
		expect.NoError(t, first.delete(t.Context(), fmt.Sprintf("a/%d", i), at))
		var err error
		for at, err = second.put(t.Context(), fmt.Sprintf("a/%d", i+1), 1, 0); errors.Is(err, errCut); {
			found, readErr := first.KV.Get(t.Context(), fmt.Sprintf("%sa/%d", root, i+1))
			if readErr != nil {
				t.Fatal(readErr)
			}
			if len(found.Kvs) > 0 {
				at, err = found.Kvs[0].ModRevision, nil
				break
			}
			at, err = second.put(t.Context(), fmt.Sprintf("a/%d", i+1), 1, 0)
		}
		if errors.Is(err, errConflict) { // a write that came late
			found, readErr := first.KV.Get(t.Context(), fmt.Sprintf("%sa/%d", root, i+1))
			if readErr != nil || len(found.Kvs) == 0 {
				t.Fatal(readErr, err)
			}
			at, err = found.Kvs[0].ModRevision, nil
		}
		expect.NoError(t, err, "after %d deletes", i+1)
	}
	second.line.late.Wait()
}

func TestConflictsAreNotForbidden(t *testing.T) {
	t.Parallel()
	s := startStore(t, limitsOf(list("1", "10"), nil))
	r := s.replica(t)
	at := mustPut(t, r, "a/1", 10, 0)
	for _, wrong := range []int64{0, at - 1, at + 1} {
		if _, err := r.put(t.Context(), "a/1", 100, wrong); !errors.Is(err, errConflict) {
			t.Errorf("a write at %d instead of %d: %v", wrong, at, err)
		}
	}
	if _, err := r.put(t.Context(), "a/2", 1, 7); !errors.Is(err, errConflict) {
		t.Errorf("an update of what is not there: %v", err)
	}
}

// TestCreateDuringDelete deletes an object after a create of it was found to be too
// late. Were it made then, it would be without regard to what others create.
func TestCreateDuringDelete(t *testing.T) {
	t.Parallel()
	s := startStore(t, limitsOf(list("1", ""), nil))
	r := s.replica(t)
	at := mustPut(t, r, "a/1", 1, 0)
	plain := etcdtest.Dial(t, s.endpoint)
	r.line.KV = &before{KV: r.line.KV, commit: 2, do: func() {
		if _, err := plain.OptimisticDelete(t.Context(), root+"a/1", at, kubernetes.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	}}
	if _, err := r.put(t.Context(), "a/1", 1, 0); !errors.Is(err, errConflict) {
		t.Errorf("a create of what was there: %v", err)
	}
	mustPut(t, r, "a/1", 1, 0)
}

// before does something before one of the transactions.
type before struct {
	clientv3.KV
	commit int
	do     func()
}

// Do implements clientv3.KV.
func (b *before) Do(ctx context.Context, op clientv3.Op) (clientv3.OpResponse, error) {
	if op.IsTxn() {
		if b.commit--; b.commit == 0 {
			b.do()
		}
	}
	return b.KV.Do(ctx, op)
}

// TestUnsupportedWritesAreRefused tries what the API server does not do.
func TestUnsupportedWritesAreRefused(t *testing.T) {
	t.Parallel()
	s := startStore(t, limitsOf(list("0", ""), nil))
	r, ctx := s.replica(t), t.Context()
	put := clientv3.OpPut(root+"a/1", "v")
	absent := clientv3.Compare(clientv3.ModRevision(root+"a/1"), "=", 0)
	for name, write := range map[string]func() error{
		"Put":  func() error { _, err := r.Put(ctx, root+"a/1", "v"); return err },
		"Do":   func() error { _, err := r.Do(ctx, put); return err },
		"Txn":  func() error { _, err := r.Txn(ctx).Then(put).Commit(); return err },
		"Else": func() error { _, err := r.Txn(ctx).If(absent).Else(put).Commit(); return err },
		"nested": func() error {
			_, err := r.Txn(ctx).If(absent).Then(clientv3.OpTxn(nil, []clientv3.Op{put}, nil)).Commit()
			return err
		},
		"two": func() error {
			_, err := r.Txn(ctx).If(absent).Then(put, clientv3.OpPut(root+"a/2", "v")).Commit()
			return err
		},
		"done": func() error {
			_, err := r.Do(ctx, clientv3.OpTxn([]clientv3.Cmp{absent}, []clientv3.Op{put}, nil))
			return err
		},
	} {
		if err := write(); err == nil {
			t.Errorf("%s: passed", name)
		}
	}
	if _, err := r.Put(ctx, "/elsewhere", "v"); err != nil {
		t.Errorf("what is not limited: %v", err)
	}
	found, err := r.KV.Get(ctx, root, clientv3.WithPrefix())
	if err != nil || len(found.Kvs) > 0 {
		t.Errorf("%d were written, %v", len(found.Kvs), err)
	}
}

// TestClusterScoped has no namespaces to limit.
func TestClusterScoped(t *testing.T) {
	t.Parallel()
	s := startStore(t, limitsOf(list("2", ""), list("1", "1")))
	r := s.replica(t)
	mustPut(t, r, "one", 10, 0)
	mustPut(t, r, "two", 10, 0)
	if _, err := r.put(t.Context(), "three", 10, 0); err == nil || !strings.Contains(err.Error(), `"three" is forbidden`) {
		t.Errorf("a third: %v", err)
	}
}
