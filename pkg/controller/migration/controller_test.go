// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package migration

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/component-base/metrics/testutil"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/controller/framework/controllertest"
	"github.com/annex-dev/annex/pkg/controller/migration/migrationstatus"
	"github.com/annex-dev/annex/pkg/generated/clientset/versioned/fake"
	hostinginformers "github.com/annex-dev/annex/pkg/generated/informers/externalversions"
	"github.com/annex-dev/annex/pkg/storage/etcd/stores"
	"github.com/annex-dev/annex/pkg/storage/move"
	"github.com/annex-dev/annex/pkg/test/expect"
)

// preparing is a GroupRun that prepares its switch until it is interrupted, as one that waits for its
// confirmation.
type preparing struct{ canceled bool }

func (p *preparing) Do(_, preparing context.Context) error {
	<-preparing.Done()
	return preparing.Err()
}

func (p *preparing) Cancel(context.Context) error {
	p.canceled = true
	return nil
}

func (p *preparing) Completed() string { return "" }

// TestDeletedBeforeAttempt deletes a Migration that no attempt runs, as when the process that ran it has
// ended: the next attempt cancels it.
func TestDeletedBeforeAttempt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		now := metav1.Now()
		client := fake.NewClientset(&hostingv1alpha1.Migration{
			ObjectMeta: metav1.ObjectMeta{Name: "deleted", DeletionTimestamp: &now, Finalizers: []string{hostingv1alpha1.MigrationFinalizer}},
			Spec:       hostingv1alpha1.MigrationSpec{Group: "example.com", Operation: hostingv1alpha1.MigrationMove},
			Status:     hostingv1alpha1.MigrationStatus{Phase: hostingv1alpha1.MigrationFollowing, StartTime: &now},
		})
		factory := hostinginformers.NewSharedInformerFactory(client, 0)
		informers, run := factory.Hosting().V1alpha1(), &preparing{}
		controller, err := New(Config{
			AnnexHosting: client.HostingV1alpha1(), Migrations: informers.Migrations(), HostedResources: informers.HostedResources(), Stores: informers.Stores(),
			NewGroupRun: func(*migrationstatus.Writer, <-chan struct{}) GroupRun { return run }, Events: events.NewFakeRecorder(10),
		})
		if err != nil {
			t.Fatal(err)
		}
		controllertest.Run(t, controller, 1, factory)
		controllertest.Advance(time.Minute)
		if !run.canceled {
			t.Error("the copy of a Migration that was deleted before the attempt was not removed")
		}
	})
}

// TestUnreachableStore begins Migrations to a Store that is not ready: only one whose etcd does not answer may become ready
// without a change of the Store.
func TestUnreachableStore(t *testing.T) {
	t.Parallel()
	for reason, final := range map[string]bool{
		stores.ReasonUnreachable: false, stores.ReasonNoQuorum: false, stores.ReasonNoSpace: true, stores.ReasonWrongCluster: true,
	} {
		t.Run(reason, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				west := &hostingv1alpha1.Store{ObjectMeta: metav1.ObjectMeta{Name: "west"}}
				setReady := func(is bool) *hostingv1alpha1.Store {
					ready := metav1.Condition{Type: hostingv1alpha1.StoreReady, Status: metav1.ConditionFalse, Reason: reason, Message: "it does not answer"}
					if is {
						ready.Status, ready.Reason = metav1.ConditionTrue, "Available"
					}
					west = west.DeepCopy()
					meta.SetStatusCondition(&west.Status.Conditions, ready)
					return west
				}
				client := fake.NewClientset(setReady(false), &hostingv1alpha1.HostedResource{
					ObjectMeta: metav1.ObjectMeta{Name: "orders.example.com"}, Spec: hostingv1alpha1.HostedResourceSpec{StoreName: "east"},
					Status: hostingv1alpha1.HostedResourceStatus{DefinitionUID: "1"},
				}, &hostingv1alpha1.Migration{
					ObjectMeta: metav1.ObjectMeta{Name: "moved"}, Spec: hostingv1alpha1.MigrationSpec{Resource: "orders.example.com", StoreName: "west"},
				})
				factory := hostinginformers.NewSharedInformerFactory(client, 0)
				informers, began := factory.Hosting().V1alpha1(), atomic.Bool{}
				controller, err := New(Config{
					AnnexHosting: client.HostingV1alpha1(), Migrations: informers.Migrations(), HostedResources: informers.HostedResources(), Stores: informers.Stores(),
					NewMover: func(_, _ string, _ move.Config) (*move.Mover, error) {
						began.Store(true)
						return nil, errors.New("it begins")
					},
					Events: events.NewFakeRecorder(10),
				})
				expect.NoError(t, err)
				controllertest.Run(t, controller, 1, factory)
				complete := func() metav1.Condition {
					controllertest.Advance(time.Minute)
					migration, err := client.HostingV1alpha1().Migrations().Get(t.Context(), "moved", metav1.GetOptions{})
					expect.NoError(t, err)
					return *meta.FindStatusCondition(migration.Status.Conditions, hostingv1alpha1.MigrationComplete)
				}
				want := hostingv1alpha1.MigrationRetrying
				if final {
					want = reasonDoesNotFit
				}
				if is := complete(); is.Reason != want || !strings.Contains(is.Message, "it does not answer") {
					t.Errorf("the Store is not ready: reason %s, %q; want %s", is.Reason, is.Message, want)
				}
				_, err = client.HostingV1alpha1().Stores().UpdateStatus(t.Context(), setReady(true), metav1.UpdateOptions{})
				expect.NoError(t, err)
				if complete(); began.Load() == final {
					t.Errorf("began when the Store was ready: %t", !final)
				}
			})
		})
	}
}

// TestCreatedMetric has a series for each Migration that has not finished, while the controller runs.
func TestCreatedMetric(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := metav1.NewTime(time.Unix(1_800_000_000, 0))
		client := fake.NewClientset(&hostingv1alpha1.Migration{
			ObjectMeta: metav1.ObjectMeta{Name: "waits", CreationTimestamp: begun}, Spec: hostingv1alpha1.MigrationSpec{Group: "example.com"},
			Status: hostingv1alpha1.MigrationStatus{Phase: hostingv1alpha1.MigrationFollowing, StartTime: &begun},
		}, &hostingv1alpha1.Migration{
			ObjectMeta: metav1.ObjectMeta{Name: "done"}, Status: hostingv1alpha1.MigrationStatus{Phase: hostingv1alpha1.MigrationCompleted},
		})
		factory := hostinginformers.NewSharedInformerFactory(client, 0)
		informers := factory.Hosting().V1alpha1()
		controller, err := New(Config{
			AnnexHosting: client.HostingV1alpha1(), Migrations: informers.Migrations(), HostedResources: informers.HostedResources(), Stores: informers.Stores(),
			NewGroupRun: func(*migrationstatus.Writer, <-chan struct{}) GroupRun { return &preparing{} }, Events: events.NewFakeRecorder(10),
		})
		expect.NoError(t, err)
		stop := controllertest.Run(t, controller, 1, factory)
		controllertest.Advance(time.Second)
		const metric = "annex_migration_created_timestamp_seconds"
		want := `# HELP annex_migration_created_timestamp_seconds [ALPHA] When a Migration that has not finished was created, in seconds since the epoch. moved is its resource or group, reason the reason of its condition Complete.
# TYPE annex_migration_created_timestamp_seconds gauge
annex_migration_created_timestamp_seconds{migration="waits",moved="example.com",phase="Following",reason=""} 1.8e+09
`
		expect.NoError(t, testutil.GatherAndCompare(legacyregistry.DefaultGatherer, strings.NewReader(want), metric))
		stop()
		expect.NoError(t, testutil.GatherAndCompare(legacyregistry.DefaultGatherer, strings.NewReader(""), metric))
	})
}

func TestGoesBefore(t *testing.T) {
	t.Parallel()
	created := metav1.Now()
	of := func(name string, change func(*hostingv1alpha1.Migration)) hostingv1alpha1.Migration {
		m := hostingv1alpha1.Migration{
			ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), CreationTimestamp: created},
			Spec:       hostingv1alpha1.MigrationSpec{Group: "example.com"},
		}
		change(&m)
		return m
	}
	unchanged := func(*hostingv1alpha1.Migration) {}
	held := func(m *hostingv1alpha1.Migration) { m.Status.Holder = "another" }
	for name, tc := range map[string]struct {
		own    func(*hostingv1alpha1.Migration)
		others []hostingv1alpha1.Migration
		want   string
	}{
		"alone": {unchanged, nil, ""},
		"an older one": {unchanged, []hostingv1alpha1.Migration{of("z", func(m *hostingv1alpha1.Migration) {
			m.CreationTimestamp = metav1.NewTime(created.Add(-time.Minute))
		})}, "z"},
		"one of the same second with a smaller name":      {unchanged, []hostingv1alpha1.Migration{of("a", unchanged)}, "a"},
		"one of the same second with a greater name":      {unchanged, []hostingv1alpha1.Migration{of("z", unchanged)}, ""},
		"a greater name that has a holder":                {unchanged, []hostingv1alpha1.Migration{of("z", held)}, "z"},
		"a greater name that has begun":                   {unchanged, []hostingv1alpha1.Migration{of("z", func(m *hostingv1alpha1.Migration) { m.Status.StartTime = &created })}, "z"},
		"one that has fenced the others":                  {held, []hostingv1alpha1.Migration{of("a", unchanged)}, ""},
		"one that has fenced the others, beside another":  {held, []hostingv1alpha1.Migration{of("z", held)}, "z"},
		"a finished one":                                  {unchanged, []hostingv1alpha1.Migration{of("a", func(m *hostingv1alpha1.Migration) { m.Status.Phase = hostingv1alpha1.MigrationFailed })}, ""},
		"one of another group":                            {unchanged, []hostingv1alpha1.Migration{of("a", func(m *hostingv1alpha1.Migration) { m.Spec.Group = "other" })}, ""},
		"the oldest of several":                           {unchanged, []hostingv1alpha1.Migration{of("b", unchanged), of("a", unchanged)}, "a"},
		"one that has begun after an older one in a list": {unchanged, []hostingv1alpha1.Migration{of("a", unchanged), of("b", held)}, "b"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			own, got := of("m", tc.own), ""
			if first := goesBefore(&own, append(tc.others, own)); first != nil {
				got = first.Name
			}
			if got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

func TestIsOwnUpdate(t *testing.T) {
	t.Parallel()
	now := metav1.Now()
	for name, test := range map[string]struct {
		change func(*hostingv1alpha1.Migration)
		own    bool
	}{
		"progress":    {func(m *hostingv1alpha1.Migration) { m.Status.CopiedObjects = 7 }, true},
		"end":         {func(m *hostingv1alpha1.Migration) { m.Status.Phase = hostingv1alpha1.MigrationFailed }, false},
		"spec":        {func(m *hostingv1alpha1.Migration) { m.Generation++ }, false},
		"deletion":    {func(m *hostingv1alpha1.Migration) { m.DeletionTimestamp = &now }, false},
		"replacement": {func(m *hostingv1alpha1.Migration) { m.UID = "other" }, false},
	} {
		before := &hostingv1alpha1.Migration{ObjectMeta: metav1.ObjectMeta{UID: "one", Generation: 1}}
		after := before.DeepCopy()
		test.change(after)
		if got := isOwnUpdate(before, after); got != test.own {
			t.Errorf("%s: %t, want %t", name, got, test.own)
		}
	}
}
