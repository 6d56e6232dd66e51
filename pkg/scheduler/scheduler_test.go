// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clienttesting "k8s.io/client-go/testing"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/controller/framework/controllertest"
	"github.com/annex-dev/annex/pkg/generated/clientset/versioned/fake"
	hostingclient "github.com/annex-dev/annex/pkg/generated/clientset/versioned/typed/hosting/v1alpha1"
	annexinformers "github.com/annex-dev/annex/pkg/generated/informers/externalversions"
	"github.com/annex-dev/annex/pkg/scheduler/framework"
	"github.com/annex-dev/annex/pkg/scheduler/plugins"
	"github.com/annex-dev/annex/pkg/test/expect"
)

// fixture is a fake API server with a scheduler.
type fixture struct {
	*Scheduler
	client    *fake.Clientset
	resources hostingclient.HostedResourceInterface
	stores    hostingclient.StoreInterface

	mu sync.Mutex
	// refuse fails bindings; bound has those that succeeded.
	refuse error
	bound  []string
	events []string
}

// run starts a scheduler for the duration of the test.
func run(t *testing.T, objects ...runtime.Object) *fixture {
	t.Helper()
	return runWith(t, func(*Config) {}, objects...)
}

func runWith(t *testing.T, configure func(*Config), objects ...runtime.Object) *fixture {
	t.Helper()
	a := &fixture{client: fake.NewClientset(objects...)}
	a.resources = a.client.HostingV1alpha1().HostedResources()
	a.stores = a.client.HostingV1alpha1().Stores()
	a.client.PrependReactor("create", "hostedresources", a.bind)
	informers := annexinformers.NewSharedInformerFactory(a.client, 0)
	hosting := informers.Hosting().V1alpha1()
	config := Config{
		Name: hostingv1alpha1.DefaultSchedulerName, AnnexHostedResources: a.resources,
		HostedResources: hosting.HostedResources(), Stores: hosting.Stores(), Migrations: hosting.Migrations(), Events: a,
	}
	configure(&config)
	s, err := New(config)
	expect.NoError(t, err)
	a.Scheduler = s
	controllertest.Run(t, s, 4, informers)
	synctest.Wait()
	return a
}

// bind handles a binding as the server does.
func (a *fixture) bind(action clienttesting.Action) (bool, runtime.Object, error) {
	if action.GetSubresource() != "binding" {
		return false, nil, nil
	}
	a.mu.Lock()
	refuse := a.refuse
	a.mu.Unlock()
	if refuse != nil {
		return true, nil, refuse
	}
	create := action.(clienttesting.CreateActionImpl)
	binding := create.GetObject().(*hostingv1alpha1.HostedResourceBinding)
	tracker, resource := a.client.Tracker(), hostingv1alpha1.SchemeGroupVersion.WithResource("hostedresources")
	found, err := tracker.Get(resource, "", create.Name)
	if err != nil {
		return true, nil, err
	}
	hosted := found.DeepCopyObject().(*hostingv1alpha1.HostedResource)
	if hosted.UID != binding.UID {
		return true, nil, errors.New("another UID")
	}
	hosted.Spec.StoreName = binding.StoreName
	a.mu.Lock()
	a.bound = append(a.bound, create.Name+" on "+binding.StoreName)
	a.mu.Unlock()
	return true, binding, tracker.Update(resource, hosted, "")
}

func (a *fixture) Eventf(_, _ runtime.Object, _, reason, _, note string, args ...any) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.events = append(a.events, reason+": "+fmt.Sprintf(note, args...))
}

func (a *fixture) refuseBindings(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.refuse = err
}

func newHosted(name string, changes ...func(*hostingv1alpha1.HostedResource)) *hostingv1alpha1.HostedResource {
	h := &hostingv1alpha1.HostedResource{
		ObjectMeta: metav1.ObjectMeta{Name: name + ".example.com", UID: types.UID(name), Generation: 1},
		Spec:       hostingv1alpha1.HostedResourceSpec{SchedulerName: hostingv1alpha1.DefaultSchedulerName},
	}
	for _, change := range changes {
		change(h)
	}
	return h
}

func requests(storage string) func(*hostingv1alpha1.HostedResource) {
	return func(h *hostingv1alpha1.HostedResource) {
		h.Spec.Requests = hostingv1alpha1.ResourceList{"storage": resource.MustParse(storage)}
	}
}

func store(name, capacity string) *hostingv1alpha1.Store {
	return &hostingv1alpha1.Store{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       hostingv1alpha1.StoreSpec{Capacity: hostingv1alpha1.ResourceList{"storage": resource.MustParse(capacity)}},
		Status:     hostingv1alpha1.StoreStatus{Conditions: []metav1.Condition{{Type: hostingv1alpha1.StoreReady, Status: metav1.ConditionTrue}}},
	}
}

func (a *fixture) create(t *testing.T, hosted *hostingv1alpha1.HostedResource) {
	t.Helper()
	expect.Create(t, a.resources, hosted)
	synctest.Wait()
}

func (a *fixture) update(t *testing.T, s *hostingv1alpha1.Store) {
	t.Helper()
	expect.Update(t, a.stores, s)
	synctest.Wait()
}

func (a *fixture) get(t *testing.T, name string) *hostingv1alpha1.HostedResource {
	t.Helper()
	hosted := expect.Get(t, a.resources, name+".example.com")
	return hosted
}

// on checks the Store of a resource.
func (a *fixture) on(t *testing.T, name, want string) {
	t.Helper()
	if got := a.get(t, name).Spec.StoreName; got != want {
		t.Errorf("%s is on Store %q, want %q", name, got, want)
	}
}

// unscheduled checks that a resource has no Store, and the message.
func (a *fixture) unscheduled(t *testing.T, name, message string) {
	t.Helper()
	hosted := a.get(t, name)
	condition := meta.FindStatusCondition(hosted.Status.Conditions, hostingv1alpha1.HostedResourceScheduled)
	if hosted.Spec.StoreName != "" || condition == nil || condition.Status != metav1.ConditionFalse || condition.Message != message {
		t.Errorf("%s is on Store %q with the condition %+v, want on none because %q", name, hosted.Spec.StoreName, condition, message)
	}
}

func TestPlacesOnBestStore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		full := store("full", "1Mi")
		full.Status.SizeInUse = new(resource.MustParse("1Mi"))
		a := run(t, store("small", "1Gi"), store("large", "1Ti"), full)
		a.create(t, newHosted("a", requests("500Mi")))
		a.on(t, "a", "large")
		want := "Scheduled: Placed on Store large; 2/3 Stores fit: large: score "
		if len(a.events) != 1 || !strings.HasPrefix(a.events[0], want) || !strings.Contains(a.events[0], "full: has no storage left of 1Mi") {
			t.Errorf("events %q, want one that begins with %q", a.events, want)
		}
	})
}

func TestIgnoresOtherSchedulers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := run(t, store("only", "1Gi"))
		a.create(t, newHosted("theirs", func(h *hostingv1alpha1.HostedResource) { h.Spec.SchedulerName = "theirs" }))
		a.create(t, newHosted("placed", func(h *hostingv1alpha1.HostedResource) { h.Spec.StoreName = "lost" }))
		a.create(t, newHosted("deleting", func(h *hostingv1alpha1.HostedResource) {
			now := metav1.Now()
			h.DeletionTimestamp, h.Finalizers = &now, []string{"example.com/wait"}
		}))
		time.Sleep(time.Hour)
		if len(a.bound) != 0 || len(a.events) != 0 {
			t.Errorf("bound %q, events %q", a.bound, a.events)
		}
		handed := a.get(t, "theirs")
		handed.Spec.SchedulerName, handed.Generation = hostingv1alpha1.DefaultSchedulerName, 2
		expect.Update(t, a.resources, handed)
		synctest.Wait()
		a.on(t, "theirs", "only")
	})
}

// TestAssumesPlacements: decisions count earlier ones that are not observed yet, and
// placements from before a restart.
func TestAssumesPlacements(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var objects []runtime.Object
		for _, name := range []string{"a", "b", "c"} {
			objects = append(objects, newHosted(name, requests("600Mi")), store(name, "1Gi"))
		}
		objects = append(objects, newHosted("d", requests("600Mi")))
		placed := newHosted("earlier", requests("600Mi"))
		placed.Spec.StoreName = "b"
		a := run(t, append(objects, placed)...)
		on := map[string]int{}
		for _, name := range []string{"a", "b", "c", "d"} {
			on[a.get(t, name).Spec.StoreName]++
		}
		if on["a"] != 1 || on["b"] != 0 || on["c"] != 1 || on[""] != 2 {
			t.Errorf("resources by Store: %v, want one each on a and c, and two that wait", on)
		}
	})
}

func TestPriorityOrder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		urgent := func(priority int32) func(*hostingv1alpha1.HostedResource) {
			return func(h *hostingv1alpha1.HostedResource) { h.Spec.Priority = priority }
		}
		a := run(t, newHosted("a", requests("600Mi")), newHosted("b", requests("600Mi"), urgent(5)), newHosted("c", requests("600Mi"), urgent(-5)), store("only", "1Gi"))
		a.on(t, "b", "only")
		a.unscheduled(t, "a", "0/1 Stores fit: only: has insufficient storage left (424Mi of 1Gi, needs 600Mi)")
	})
}

func TestRetriesWhenAStoreChanges(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*testing.T, *fixture){
		"capacity":  func(t *testing.T, a *fixture) { a.update(t, store("only", "2Gi")) },
		"new Store": func(t *testing.T, a *fixture) { a.addStore(t, store("other", "2Gi")) },
		"deleted resource": func(t *testing.T, a *fixture) {
			expect.Delete(t, a.resources, "there.example.com")
		},
		"smaller requests": func(t *testing.T, a *fixture) {
			hosted := a.get(t, "waits")
			requests("1Mi")(hosted)
			hosted.Generation++
			expect.Update(t, a.resources, hosted)
		},
		"smaller requests of another resource": func(t *testing.T, a *fixture) {
			hosted := a.get(t, "there")
			requests("1Mi")(hosted)
			expect.Update(t, a.resources, hosted)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				there := newHosted("there", requests("600Mi"))
				there.Spec.StoreName = "only"
				a := run(t, there, newHosted("waits", requests("600Mi")), store("only", "1Gi"))
				a.unscheduled(t, "waits", "0/1 Stores fit: only: has insufficient storage left (424Mi of 1Gi, needs 600Mi)")
				began := time.Now()
				change(t, a)
				synctest.Wait()
				if a.get(t, "waits").Spec.StoreName == "" {
					t.Error("it still waits")
				}
				if took := time.Since(began); took != 0 {
					t.Errorf("it took %s", took)
				}
			})
		})
	}
}

// TestRetriesWhenMetadataChanges: custom plugins may use labels and annotations.
func TestRetriesWhenMetadataChanges(t *testing.T) {
	t.Parallel()
	const shares = "example.com/shares"
	all := &framework.Plugins{}
	all.AddFilter("Shares", func(resource *framework.Resource, store *framework.Store) string {
		for _, other := range store.Resources {
			if resource.Annotations[shares] == "" && other.Labels[shares] == "" {
				return "has resources that do not share"
			}
		}
		return ""
	})
	for name, changed := range map[string]string{"waiting resource": "waits", "placed resource": "there"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				there := newHosted("there")
				there.Spec.StoreName = "only"
				a := runWith(t, func(config *Config) { config.Plugins = all }, there, newHosted("waits"), store("only", "1Gi"))
				a.unscheduled(t, "waits", "0/1 Stores fit: only: has resources that do not share")
				hosted := a.get(t, changed)
				hosted.Labels, hosted.Annotations = map[string]string{shares: "yes"}, map[string]string{shares: "yes"}
				expect.Update(t, a.resources, hosted)
				synctest.Wait()
				a.on(t, "waits", "only")
			})
		})
	}
}

func (a *fixture) addStore(t *testing.T, s *hostingv1alpha1.Store) {
	t.Helper()
	expect.Create(t, a.stores, s)
	synctest.Wait()
}

// TestConditionFollowsReasons: but not on every change of a number.
func TestConditionFollowsReasons(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := run(t, newHosted("waits", requests("2Gi")), store("only", "1Gi"))
		a.unscheduled(t, "waits", "0/1 Stores fit: only: has insufficient storage left (1Gi of 1Gi, needs 2Gi)")
		tainted := store("only", "4Gi")
		tainted.Spec.Taints = []hostingv1alpha1.Taint{{Key: "old", Effect: hostingv1alpha1.TaintEffectNoSchedule}}
		a.update(t, tainted)
		time.Sleep(firstBackoff)
		synctest.Wait()
		a.unscheduled(t, "waits", "0/1 Stores fit: only: has the untolerated taint old:NoSchedule")
		expect.Delete(t, a.stores, "only")
		time.Sleep(2 * firstBackoff)
		synctest.Wait()
		a.unscheduled(t, "waits", "there are no Stores")
		a.client.ClearActions()
		time.Sleep(time.Hour)
		if writes := len(a.client.Actions()); writes != 0 {
			t.Errorf("%d requests while nothing changes: %v", writes, a.client.Actions())
		}
		if len(a.events) != 3 {
			t.Errorf("events %q, want three", a.events)
		}
	})
}

func TestFailedBinding(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := run(t, store("only", "1Gi"))
		a.refuseBindings(errors.New("the server is restarting"))
		a.create(t, newHosted("a", requests("600Mi")))
		a.on(t, "a", "")
		// The assumption is removed, so another resource takes the capacity.
		a.refuseBindings(nil)
		a.create(t, newHosted("b", requests("600Mi")))
		a.on(t, "b", "only")
		time.Sleep(firstBackoff)
		synctest.Wait()
		a.unscheduled(t, "a", "0/1 Stores fit: only: has insufficient storage left (424Mi of 1Gi, needs 600Mi)")

		a.refuseBindings(errors.New("the server is restarting"))
		a.create(t, newHosted("c"))
		a.refuseBindings(nil)
		time.Sleep(firstBackoff)
		synctest.Wait()
		a.on(t, "c", "only")
	})
}

// TestChangesWhileWaiting changes a Store often: the resource is decided again once for all
// changes. It is deleted in the end.
func TestChangesWhileWaiting(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := run(t, newHosted("waits", requests("2Gi")), store("only", "1Gi"))
		taint := func(key string) {
			tainted := store("only", "4Gi")
			tainted.Spec.Taints = []hostingv1alpha1.Taint{{Key: key, Effect: hostingv1alpha1.TaintEffectNoSchedule}}
			a.update(t, tainted)
		}
		for _, key := range []string{"a", "b", "c", "d", "e"} {
			taint(key)
		}
		time.Sleep(firstBackoff)
		synctest.Wait()
		a.unscheduled(t, "waits", "0/1 Stores fit: only: has the untolerated taint e:NoSchedule")
		taint("f")
		time.Sleep(2 * firstBackoff)
		synctest.Wait()
		a.unscheduled(t, "waits", "0/1 Stores fit: only: has the untolerated taint f:NoSchedule")
		expect.Delete(t, a.resources, "waits.example.com")
		synctest.Wait()
		a.update(t, store("only", "4Gi"))
	})
}

// TestBackoff counts the attempts to bind while the server refuses all.
func TestBackoff(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := run(t, store("only", "1Gi"))
		a.refuseBindings(errors.New("the server is restarting"))
		a.client.ClearActions()
		expect.Create(t, a.resources, newHosted("a"))
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		// After 0, 1, 3, 7, 15, 31, 63, 123, 183 and 243 seconds.
		if attempts := len(a.client.Actions()) - 1; attempts != 10 {
			t.Errorf("%d attempts in five minutes, want 10", attempts)
		}
	})
}

// TestPreviousStore deletes and recreates a resource.
func TestPreviousStore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := run(t, store("first", "1Gi"))
		a.create(t, newHosted("a"))
		a.on(t, "a", "first")
		a.addStore(t, store("roomier", "1Ti"))
		expect.Delete(t, a.resources, "a.example.com")
		synctest.Wait()
		a.create(t, newHosted("a", func(h *hostingv1alpha1.HostedResource) { h.UID = "second" }))
		a.on(t, "a", "first")
	})
}

func TestIgnoresStatusOfOtherManagers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := run(t, store("only", "1Gi"), newHosted("waits", requests("2Gi")))
		a.client.ClearActions()
		hosted := a.get(t, "waits")
		hosted.Status.CachedBytes = 7
		_, err := a.resources.UpdateStatus(t.Context(), hosted, metav1.UpdateOptions{})
		expect.NoError(t, err)
		time.Sleep(time.Hour)
		if got := len(a.client.Actions()); got != 2 {
			t.Errorf("requests %v, want only those of this test", a.client.Actions())
		}
	})
}

func BenchmarkPlaceThousandOnTwenty(b *testing.B) {
	all := plugins.All()
	for b.Loop() {
		state := newStoreCache()
		for i := range 20 {
			state.setStore(store(fmt.Sprintf("store-%02d", i), "100Gi"))
		}
		for i := range 1000 {
			state.setResource(newHosted(fmt.Sprintf("r%d", i), requests("300Mi")))
		}
		for i := range 1000 {
			if _, decision := state.decide(fmt.Sprintf("r%d.example.com", i), waits, all); len(decision) != 20 {
				b.Fatal(decision)
			}
		}
	}
}
