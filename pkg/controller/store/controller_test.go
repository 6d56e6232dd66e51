// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clienttesting "k8s.io/client-go/testing"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	annexfake "github.com/annex-dev/annex/pkg/generated/clientset/versioned/fake"
	annexinformers "github.com/annex-dev/annex/pkg/generated/informers/externalversions"
)

// etcd is an EtcdClient whose answers a test can change; every write of a status
// makes its database a page larger, as it does a real one's.
type etcd struct {
	mu      sync.Mutex
	down    bool
	size    int64
	objects int64
	asked   int
}

func (e *etcd) Status(context.Context, string) (*clientv3.StatusResponse, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.asked++
	if e.down {
		return nil, errors.New("refused")
	}
	return answer(1, e.size, nil).status, nil
}

func (e *etcd) MemberList(context.Context, ...clientv3.OpOption) (*clientv3.MemberListResponse, error) {
	return &clientv3.MemberListResponse{Members: []*etcdserverpb.Member{{ID: 1, Name: "a"}}}, nil
}

func (e *etcd) change(change func(*etcd)) {
	e.mu.Lock()
	defer e.mu.Unlock()
	change(e)
}

func (e *etcd) timesAsked() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.asked
}

// running is a controller at work on a store "default" and one more.
type running struct {
	*Controller
	*etcd
	annex *annexfake.Clientset
}

func run(t *testing.T) *running {
	t.Helper()
	r := &running{
		etcd: &etcd{size: 10 * mebi, objects: 3},
		annex: annexfake.NewClientset(
			&hostingv1alpha1.Store{ObjectMeta: metav1.ObjectMeta{Name: "default"}},
			&hostingv1alpha1.Store{ObjectMeta: metav1.ObjectMeta{Name: "other"}},
		),
	}
	r.annex.PrependReactor("update", "stores", func(clienttesting.Action) (bool, runtime.Object, error) {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.down {
			return true, nil, apierrors.NewInternalError(errors.New("etcd is down"))
		}
		r.size += 4096
		// The tracker sees the write of the status, too.
		r.UsageChanged(hostingv1alpha1.Resource("stores"))
		return false, nil, nil
	})
	informers := annexinformers.NewSharedInformerFactory(r.annex, 0)
	c, err := New(Config{
		AnnexStores: r.annex.HostingV1alpha1().Stores(),
		Stores:      informers.Hosting().V1alpha1().Stores(),
		DefaultEtcd: Etcd{Client: r.etcd, Endpoints: []string{"https://etcd-1"}},
		Objects: func() (int64, bool) {
			r.mu.Lock()
			defer r.mu.Unlock()
			return r.objects, true
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	r.Controller = c
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	informers.StartWithContext(ctx)
	go func() {
		defer close(done)
		c.Run(ctx, 2)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
		informers.Shutdown()
	})
	synctest.Wait()
	return r
}

func (r *running) status(t *testing.T, name string) hostingv1alpha1.StoreStatus {
	t.Helper()
	store, err := r.annex.HostingV1alpha1().Stores().Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return store.Status
}

func (r *running) reason(t *testing.T, name string) string {
	t.Helper()
	if ready := meta.FindStatusCondition(r.status(t, name).Conditions, hostingv1alpha1.StoreReady); ready != nil {
		return string(ready.Status) + " " + ready.Reason
	}
	return ""
}

func (r *running) writes() int {
	count := 0
	for _, action := range r.annex.Actions() {
		if action.Matches("update", "stores/status") {
			count++
		}
	}
	return count
}

// pass lets time pass, and everything happen that happens in it.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func TestReportsAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := run(t)
		status := r.status(t, "default")
		if got := r.reason(t, "default"); got != "True Available" {
			t.Errorf("Ready=%s, want True Available", got)
		}
		if status.Objects != 3 || sizeIsNews(quantity(10*mebi), status.Size) || len(status.Members) != 1 {
			t.Errorf("status %+v, want 3 objects in about 10Mi on one member", status)
		}
		if got := r.reason(t, "other"); got != "Unknown NotConnected" {
			t.Errorf("Ready=%s of a store that annex does not use, want Unknown NotConnected", got)
		}
	})
}

func TestWritesNothingWhenNothingHappens(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := run(t)
		pass(10 * time.Second)
		before, askedBefore := r.writes(), r.timesAsked()
		pass(24 * time.Hour)
		if got := r.writes() - before; got != 0 {
			t.Errorf("status written %d times in a day without a change", got)
		}
		if got, most := r.timesAsked()-askedBefore, int(24*time.Hour/refreshInterval)+1; got > most {
			t.Errorf("etcd asked %d times in a day, want at most %d", got, most)
		}
	})
}

func TestFollowsUsage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := run(t)
		before, askedBefore := r.writes(), r.timesAsked()
		const seconds, perSecond = 20, 100
		for range seconds * perSecond {
			r.change(func(e *etcd) { e.objects++; e.size += 4096 })
			r.UsageChanged(schema.GroupResource{Resource: "configmaps"})
			time.Sleep(time.Second / perSecond)
		}
		pass(2 * time.Second)
		if got := r.writes() - before; got < seconds-2 || got > seconds+2 {
			t.Errorf("status written %d times in %d s of load, want about once per second", got, seconds)
		}
		if got := r.timesAsked() - askedBefore; got > seconds+4 {
			t.Errorf("etcd asked %d times in %d s of load", got, seconds)
		}
		if got := r.status(t, "default").Objects; got != 3+seconds*perSecond {
			t.Errorf("%d objects after the load, want %d", got, 3+seconds*perSecond)
		}
	})
}

func TestFollowsGrowthOfTheDatabase(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := run(t)
		pass(10 * time.Second)
		r.change(func(e *etcd) { e.size = 50 * mebi })
		pass(refreshInterval)
		if got := r.status(t, "default").Size.Value(); got != 50*mebi {
			t.Errorf("size %d, want %d", got, 50*mebi)
		}
	})
}

func TestGoesDownAndComesBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := run(t)
		r.change(func(e *etcd) { e.down = true })
		pass(10 * time.Minute)
		if got := r.reason(t, "default"); got != "True Available" {
			t.Errorf("Ready=%s although nothing could be written", got)
		}
		r.change(func(e *etcd) { e.down = false; e.objects = 7 })
		pass(troubleInterval + time.Second)
		if got := r.status(t, "default").Objects; got != 7 {
			t.Errorf("%d objects %s after etcd came back, want 7", got, troubleInterval+time.Second)
		}
	})
}

func TestIsReportedAgainWhenMadeAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := run(t)
		stores := r.annex.HostingV1alpha1().Stores()
		if err := stores.Delete(t.Context(), "other", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		pass(time.Second)
		if _, err := stores.Create(t.Context(), &hostingv1alpha1.Store{ObjectMeta: metav1.ObjectMeta{Name: "other"}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		pass(time.Second)
		if got := r.reason(t, "other"); got != "Unknown NotConnected" {
			t.Errorf("Ready=%q of a store that was made again", got)
		}
	})
}
