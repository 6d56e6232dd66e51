// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	dto "github.com/prometheus/client_model/go"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/events"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/controller/framework/controllertest"
	annexfake "github.com/annex-dev/annex/pkg/generated/clientset/versioned/fake"
	annexinformers "github.com/annex-dev/annex/pkg/generated/informers/externalversions"
	"github.com/annex-dev/annex/pkg/test/expect"
)

// running is a controller at work on a store "default".
type running struct {
	*Controller
	*connection
	annex *annexfake.Clientset
	// The connection's lock guards the fields.
	objects int64
	away    bool
}

// grow makes the database larger.
func (r *running) grow(by int64) {
	seen := cluster(answer(1, r.seen.Endpoints[0].Status.DbSize+by, nil))
	r.seen = seen
}

func run(t *testing.T) *running {
	t.Helper()
	r := &running{
		connection: &connection{seen: cluster(answer(1, 10*mebi, nil))},
		objects:    3,
		annex:      annexfake.NewClientset(&hostingv1alpha1.Store{ObjectMeta: metav1.ObjectMeta{Name: "default"}}),
	}
	// Every write of a status makes the database a page larger, as it does a real one.
	r.annex.PrependReactor("update", "stores", func(clienttesting.Action) (bool, runtime.Object, error) {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.away {
			return true, nil, apierrors.NewInternalError(errors.New("etcd is down"))
		}
		r.grow(4096)
		// The tracker sees the write of the status, too.
		r.StoreUsageChanged("default")
		return false, nil, nil
	})
	informers := annexinformers.NewSharedInformerFactory(r.annex, 0)
	hosting := informers.Hosting().V1alpha1()
	c, err := New(Config{
		AnnexStores:          r.annex.HostingV1alpha1().Stores(),
		AnnexHostedResources: r.annex.HostingV1alpha1().HostedResources(),
		AnnexMigrations:      r.annex.HostingV1alpha1().Migrations(),
		Stores:               hosting.Stores(),
		HostedResources:      hosting.HostedResources(),
		Connection:           func(string) (Connection, error) { return r.connection, nil },
		AddListener:          func(func(string)) func() { return func() {} },
		Objects: func(string) (int64, bool) {
			r.mu.Lock()
			defer r.mu.Unlock()
			return r.objects, true
		},
		Events: events.NewFakeRecorder(100),
	})
	expect.NoError(t, err)
	r.Controller = c
	controllertest.Run(t, c, 2, informers)
	synctest.Wait()
	return r
}

func (r *running) status(t *testing.T, name string) hostingv1alpha1.StoreStatus {
	t.Helper()
	store := expect.Get(t, r.annex.HostingV1alpha1().Stores(), name)
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
		if status.Objects != 3 || sizeChanged(quantity(10*mebi), status.DatabaseSize) || len(status.Members) != 3 {
			t.Errorf("status %+v, want 3 objects in about 10Mi on three members", status)
		}
	})
}

func TestBackupMetric(t *testing.T) {
	t.Parallel()
	registerMetrics() // a metric has no description before
	store := &hostingv1alpha1.Store{ObjectMeta: metav1.ObjectMeta{Name: "west"}}
	if metric := backupMetric(store); metric != nil {
		t.Errorf("a Store without a backup has %v", metric)
	}
	store.Status.LastBackupTime = &metav1.Time{Time: time.Unix(1_800_000_000, 0)}
	var written dto.Metric
	expect.NoError(t, backupMetric(store).Write(&written))
	expect.Equal(t, "west 1.8e+09", fmt.Sprint(written.GetLabel()[0].GetValue(), " ", written.GetGauge().GetValue()))
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
			t.Errorf("probed %d times in a day, want at most %d", got, most)
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
			r.change(func(*connection) { r.objects++; r.grow(4096) })
			r.StoreUsageChanged("default")
			time.Sleep(time.Second / perSecond)
		}
		pass(2 * time.Second)
		if got := r.writes() - before; got < seconds-2 || got > seconds+2 {
			t.Errorf("status written %d times in %d s of load, want about once per second", got, seconds)
		}
		if got := r.timesAsked() - askedBefore; got > seconds+4 {
			t.Errorf("probed %d times in %d s of load", got, seconds)
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
		r.change(func(*connection) { r.grow(40 * mebi) })
		pass(refreshInterval)
		if got := r.status(t, "default").DatabaseSize.Value(); got < 50*mebi {
			t.Errorf("size %d, want at least %d", got, 50*mebi)
		}
	})
}

func TestGoesDownAndComesBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := run(t)
		r.change(func(c *connection) { r.away = true; c.seen = down() })
		pass(10 * time.Minute)
		if got := r.reason(t, "default"); got != "True Available" {
			t.Errorf("Ready=%s although nothing could be written", got)
		}
		r.change(func(c *connection) { r.away = false; r.objects = 7; c.seen = cluster(answer(1, 10*mebi, nil)) })
		pass(troubleInterval + time.Second)
		if got := r.status(t, "default").Objects; got != 7 {
			t.Errorf("%d objects %s after etcd came back, want 7", got, troubleInterval+time.Second)
		}
	})
}

func TestCountsWhatIsPlaced(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := run(t)
		hosted := r.annex.HostingV1alpha1().HostedResources()
		for _, name := range []string{"a.example.com", "b.example.com"} {
			object := &hostingv1alpha1.HostedResource{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: hostingv1alpha1.HostedResourceSpec{StoreName: "default"}}
			expect.Create(t, hosted, object)
		}
		pass(2 * time.Second)
		if got := r.status(t, "default").Resources; got != 2 {
			t.Errorf("%d resources, want 2", got)
		}
		expect.Delete(t, hosted, "a.example.com")
		pass(2 * time.Second)
		if got := r.status(t, "default").Resources; got != 1 {
			t.Errorf("%d resources after one went, want 1", got)
		}
	})
}
