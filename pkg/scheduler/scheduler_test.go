// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"context"
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
	"k8s.io/utils/ptr"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/generated/clientset/versioned/fake"
	hostingclient "github.com/annex-dev/annex/pkg/generated/clientset/versioned/typed/hosting/v1alpha1"
	annexinformers "github.com/annex-dev/annex/pkg/generated/informers/externalversions"
	"github.com/annex-dev/annex/pkg/scheduler/framework"
	"github.com/annex-dev/annex/pkg/scheduler/plugins"
)

// annex is an API with a scheduler.
type annex struct {
	*Scheduler
	client    *fake.Clientset
	resources hostingclient.HostedResourceInterface
	stores    hostingclient.StoreInterface

	mu sync.Mutex
	// refuse has bindings fail, bound are those that did not, in their order.
	refuse error
	bound  []string
	events []string
}

// run starts a scheduler that ends with the test.
func run(t *testing.T, objects ...runtime.Object) *annex {
	t.Helper()
	return runWith(t, func(*Config) {}, objects...)
}

// runWith does so with another configuration.
func runWith(t *testing.T, configure func(*Config), objects ...runtime.Object) *annex {
	t.Helper()
	a := &annex{client: fake.NewClientset(objects...)}
	a.resources = a.client.HostingV1alpha1().HostedResources()
	a.stores = a.client.HostingV1alpha1().Stores()
	a.client.PrependReactor("create", "hostedresources", a.bind)
	informers := annexinformers.NewSharedInformerFactory(a.client, 0)
	hosting := informers.Hosting().V1alpha1()
	config := Config{
		Name: hostingv1alpha1.DefaultSchedulerName, AnnexHostedResources: a.resources,
		HostedResources: hosting.HostedResources(), Stores: hosting.Stores(), Events: a,
	}
	configure(&config)
	s, err := New(config)
	if err != nil {
		t.Fatal(err)
	}
	a.Scheduler = s
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	informers.StartWithContext(ctx)
	go func() {
		defer close(done)
		s.Run(ctx, 4)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
		informers.Shutdown()
	})
	synctest.Wait()
	return a
}

// bind is what the server does with a binding.
func (a *annex) bind(action clienttesting.Action) (bool, runtime.Object, error) {
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

func (a *annex) Eventf(_, _ runtime.Object, _, reason, _, note string, args ...any) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.events = append(a.events, reason+": "+fmt.Sprintf(note, args...))
}

func (a *annex) refuseBindings(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.refuse = err
}

// made returns a HostedResource as a test describes it.
func made(name string, changes ...func(*hostingv1alpha1.HostedResource)) *hostingv1alpha1.HostedResource {
	h := &hostingv1alpha1.HostedResource{
		ObjectMeta: metav1.ObjectMeta{Name: name + ".example.com", UID: types.UID(name), Generation: 1},
		Spec:       hostingv1alpha1.HostedResourceSpec{SchedulerName: hostingv1alpha1.DefaultSchedulerName},
	}
	for _, change := range changes {
		change(h)
	}
	return h
}

func wants(storage string) func(*hostingv1alpha1.HostedResource) {
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

func (a *annex) create(t *testing.T, hosted *hostingv1alpha1.HostedResource) {
	t.Helper()
	if _, err := a.resources.Create(t.Context(), hosted, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	synctest.Wait()
}

func (a *annex) update(t *testing.T, s *hostingv1alpha1.Store) {
	t.Helper()
	if _, err := a.stores.Update(t.Context(), s, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	synctest.Wait()
}

func (a *annex) get(t *testing.T, name string) *hostingv1alpha1.HostedResource {
	t.Helper()
	hosted, err := a.resources.Get(t.Context(), name+".example.com", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return hosted
}

// on checks where a resource is.
func (a *annex) on(t *testing.T, name, want string) {
	t.Helper()
	if got := a.get(t, name).Spec.StoreName; got != want {
		t.Errorf("%s is on Store %q, want %q", name, got, want)
	}
}

// unscheduled checks why a resource has no Store.
func (a *annex) unscheduled(t *testing.T, name, message string) {
	t.Helper()
	hosted := a.get(t, name)
	condition := meta.FindStatusCondition(hosted.Status.Conditions, hostingv1alpha1.HostedResourceScheduled)
	if hosted.Spec.StoreName != "" || condition == nil || condition.Status != metav1.ConditionFalse || condition.Message != message {
		t.Errorf("%s is on Store %q with the condition %+v, want on none because %q", name, hosted.Spec.StoreName, condition, message)
	}
}

func TestPlacesOnTheBest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		full := store("full", "1Mi")
		full.Status.SizeInUse = ptr.To(resource.MustParse("1Mi"))
		a := run(t, store("small", "1Gi"), store("large", "1Ti"), full)
		a.create(t, made("a", wants("500Mi")))
		a.on(t, "a", "large")
		want := "Scheduled: Placed on Store large; 2/3 Stores fit: large: score "
		if len(a.events) != 1 || !strings.HasPrefix(a.events[0], want) || !strings.Contains(a.events[0], "full: has no storage left of 1Mi") {
			t.Errorf("events %q, want one that begins with %q", a.events, want)
		}
	})
}

func TestLeavesOthersAlone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := run(t, store("only", "1Gi"))
		a.create(t, made("theirs", func(h *hostingv1alpha1.HostedResource) { h.Spec.SchedulerName = "theirs" }))
		a.create(t, made("given", func(h *hostingv1alpha1.HostedResource) { h.Spec.StoreName = "lost" }))
		a.create(t, made("going", func(h *hostingv1alpha1.HostedResource) {
			now := metav1.Now()
			h.DeletionTimestamp, h.Finalizers = &now, []string{"example.com/wait"}
		}))
		time.Sleep(time.Hour)
		if len(a.bound) != 0 || len(a.events) != 0 {
			t.Errorf("bound %q, events %q", a.bound, a.events)
		}
		// What is handed over is placed.
		handed := a.get(t, "theirs")
		handed.Spec.SchedulerName, handed.Generation = hostingv1alpha1.DefaultSchedulerName, 2
		if _, err := a.resources.Update(t.Context(), handed, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		a.on(t, "theirs", "only")
	})
}

// TestAssumes: decisions reckon with what was decided before, though the API does not
// say so yet, and with what the API says after a restart.
func TestAssumes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var objects []runtime.Object
		for _, name := range []string{"a", "b", "c"} {
			objects = append(objects, made(name, wants("600Mi")), store(name, "1Gi"))
		}
		objects = append(objects, made("d", wants("600Mi")))
		placed := made("earlier", wants("600Mi"))
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

func TestThoseWithPriorityGoFirst(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		urgent := func(priority int32) func(*hostingv1alpha1.HostedResource) {
			return func(h *hostingv1alpha1.HostedResource) { h.Spec.Priority = priority }
		}
		a := run(t, made("a", wants("600Mi")), made("b", wants("600Mi"), urgent(5)), made("c", wants("600Mi"), urgent(-5)), store("only", "1Gi"))
		a.on(t, "b", "only")
		a.unscheduled(t, "a", "0/1 Stores fit: only: has insufficient storage left (424Mi of 1Gi, wanted 600Mi)")
	})
}

func TestTriesAgainWhenAStoreChanges(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*testing.T, *annex){
		"room":      func(t *testing.T, a *annex) { a.update(t, store("only", "2Gi")) },
		"new Store": func(t *testing.T, a *annex) { a.addStore(t, store("other", "2Gi")) },
		"space, by what was deleted": func(t *testing.T, a *annex) {
			if err := a.resources.Delete(t.Context(), "there.example.com", metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
		},
		"smaller wishes": func(t *testing.T, a *annex) {
			hosted := a.get(t, "waits")
			wants("1Mi")(hosted)
			hosted.Generation++
			if _, err := a.resources.Update(t.Context(), hosted, metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
		},
		"smaller wishes of another": func(t *testing.T, a *annex) {
			hosted := a.get(t, "there")
			wants("1Mi")(hosted)
			if _, err := a.resources.Update(t.Context(), hosted, metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				there := made("there", wants("600Mi"))
				there.Spec.StoreName = "only"
				a := run(t, there, made("waits", wants("600Mi")), store("only", "1Gi"))
				a.unscheduled(t, "waits", "0/1 Stores fit: only: has insufficient storage left (424Mi of 1Gi, wanted 600Mi)")
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

// TestTriesAgainWhenSomethingIsDescribedAnew: labels and annotations are what plugins of
// one's own go by.
func TestTriesAgainWhenSomethingIsDescribedAnew(t *testing.T) {
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
	for name, described := range map[string]string{"what waits": "waits", "what is in the way": "there"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				there := made("there")
				there.Spec.StoreName = "only"
				a := runWith(t, func(config *Config) { config.Plugins = all }, there, made("waits"), store("only", "1Gi"))
				a.unscheduled(t, "waits", "0/1 Stores fit: only: has resources that do not share")
				hosted := a.get(t, described)
				hosted.Labels, hosted.Annotations = map[string]string{shares: "yes"}, map[string]string{shares: "yes"}
				if _, err := a.resources.Update(t.Context(), hosted, metav1.UpdateOptions{}); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				a.on(t, "waits", "only")
			})
		})
	}
}

func (a *annex) addStore(t *testing.T, s *hostingv1alpha1.Store) {
	t.Helper()
	if _, err := a.stores.Create(t.Context(), s, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	synctest.Wait()
}

// TestSaysWhatIsInTheWayNow: the condition follows, but not each time a number does.
func TestSaysWhatIsInTheWayNow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := run(t, made("waits", wants("2Gi")), store("only", "1Gi"))
		a.unscheduled(t, "waits", "0/1 Stores fit: only: has insufficient storage left (1Gi of 1Gi, wanted 2Gi)")
		tainted := store("only", "4Gi")
		tainted.Spec.Taints = []hostingv1alpha1.Taint{{Key: "old", Effect: hostingv1alpha1.TaintEffectNoSchedule}}
		a.update(t, tainted)
		time.Sleep(firstBackoff)
		synctest.Wait()
		a.unscheduled(t, "waits", "0/1 Stores fit: only: has the untolerated taint old:NoSchedule")
		if err := a.stores.Delete(t.Context(), "only", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
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

func TestBindingThatFails(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := run(t, store("only", "1Gi"))
		a.refuseBindings(errors.New("the server is restarting"))
		a.create(t, made("a", wants("600Mi")))
		a.on(t, "a", "")
		// What was assumed is taken back: another resource has the room meanwhile.
		a.refuseBindings(nil)
		a.create(t, made("b", wants("600Mi")))
		a.on(t, "b", "only")
		time.Sleep(firstBackoff)
		synctest.Wait()
		a.unscheduled(t, "a", "0/1 Stores fit: only: has insufficient storage left (424Mi of 1Gi, wanted 600Mi)")

		a.refuseBindings(errors.New("the server is restarting"))
		a.create(t, made("c"))
		a.refuseBindings(nil)
		time.Sleep(firstBackoff)
		synctest.Wait()
		a.on(t, "c", "only")
	})
}

// TestComesBackToItsStore: a resource that is deleted and made again.
func TestComesBackToItsStore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := run(t, store("first", "1Gi"))
		a.create(t, made("a"))
		a.on(t, "a", "first")
		a.addStore(t, store("roomier", "1Ti"))
		if err := a.resources.Delete(t.Context(), "a.example.com", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		a.create(t, made("a", func(h *hostingv1alpha1.HostedResource) { h.UID = "second" }))
		a.on(t, "a", "first")
	})
}

func TestStatusOfOthersDoesNotDisturb(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := run(t, store("only", "1Gi"), made("waits", wants("2Gi")))
		a.client.ClearActions()
		hosted := a.get(t, "waits")
		hosted.Status.CachedBytes = 7
		if _, err := a.resources.UpdateStatus(t.Context(), hosted, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		if got := len(a.client.Actions()); got != 2 {
			t.Errorf("requests %v, want those of this test", a.client.Actions())
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
			state.setResource(made(fmt.Sprintf("r%d", i), wants("300Mi")))
		}
		for i := range 1000 {
			if _, decision := state.decide(fmt.Sprintf("r%d.example.com", i), all); len(decision) != 20 {
				b.Fatal(decision)
			}
		}
	}
}
