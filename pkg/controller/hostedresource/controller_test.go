// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package hostedresource

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	apiextensionsfake "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset/fake"
	apiextensionsinformers "k8s.io/apiextensions-apiserver/pkg/client/informers/externalversions"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/events"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/controller/framework/controllertest"
	annexfake "github.com/annex-dev/annex/pkg/generated/clientset/versioned/fake"
	annexinformers "github.com/annex-dev/annex/pkg/generated/informers/externalversions"
	"github.com/annex-dev/annex/pkg/storage/etcd/usage"
	"github.com/annex-dev/annex/pkg/test/expect"
)

// controllerFixture is a running controller with fake clients.
type controllerFixture struct {
	*Controller
	annex       *annexfake.Clientset
	definitions *apiextensionsfake.Clientset
	objects     atomic.Int64 // of each resource, in namespace "default" and on Store "default"
	unknown     atomic.Bool
	registry    *registry
	recorder    *events.FakeRecorder
}

// In implements Usage.
func (r *controllerFixture) In(store string, _ schema.GroupResource) (usage.Usage, bool) {
	objects := r.objects.Load()
	return usage.Usage{Objects: objects, Bytes: 20 * objects, PlainBytes: 100 * objects}, store == "default" && !r.unknown.Load()
}

// Namespaces implements Usage.
func (r *controllerFixture) Namespaces(_ string, resource schema.GroupResource) map[string]usage.Usage {
	in, _ := r.In("default", resource)
	return map[string]usage.Usage{"default": in}
}

// run starts a controller that runs until the end of the test. It begins with the given
// HostedResources and their definition.
func run(t *testing.T, existing ...runtime.Object) *controllerFixture {
	t.Helper()
	r := &controllerFixture{
		annex:       annexfake.NewClientset(append(existing, ready(metav1.ConditionTrue, ""))...),
		definitions: apiextensionsfake.NewClientset(),
		registry:    &registry{},
		recorder:    events.NewFakeRecorder(10),
	}
	if len(existing) > 0 {
		r.createDefinition(t)
	}
	annex := annexinformers.NewSharedInformerFactory(r.annex, 0)
	definitions := apiextensionsinformers.NewSharedInformerFactory(r.definitions, 0)
	c, err := New(Config{
		AnnexHostedResources:      r.annex.HostingV1alpha1().HostedResources(),
		AnnexDefinitions:          r.definitions.ApiextensionsV1().CustomResourceDefinitions(),
		HostedResources:           annex.Hosting().V1alpha1().HostedResources(),
		Stores:                    annex.Hosting().V1alpha1().Stores(),
		CustomResourceDefinitions: definitions.Apiextensions().V1().CustomResourceDefinitions(),
		Usage:                     r,
		Unreadable:                r.registry,
		Caches:                    &fakeCaches{},
		Events:                    r.recorder,
	})
	expect.NoError(t, err)
	r.Controller = c
	controllertest.Run(t, c, 2, annex, definitions)
	synctest.Wait()
	return r
}

func (r *controllerFixture) define(t *testing.T) {
	t.Helper()
	r.createDefinition(t)
	settle()
}

func (r *controllerFixture) createDefinition(t *testing.T) {
	t.Helper()
	crd := established()
	crd.UID = "7"
	expect.Create(t, r.definitions.ApiextensionsV1().CustomResourceDefinitions(), crd)
}

// place does the scheduler's part.
func (r *controllerFixture) place(t *testing.T) {
	t.Helper()
	resource := r.hosted(t)
	resource.Spec.StoreName = "default"
	expect.Update(t, r.annex.HostingV1alpha1().HostedResources(), resource)
	settle()
}

// hosted returns the HostedResource, or nil if there is none.
func (r *controllerFixture) hosted(t *testing.T) *hosted {
	t.Helper()
	resource, err := r.annex.HostingV1alpha1().HostedResources().Get(t.Context(), widgets, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	expect.NoError(t, err)
	return resource
}

// condition returns a condition as text, empty if there is none.
func (r *controllerFixture) condition(t *testing.T, kind string) string {
	t.Helper()
	c := meta.FindStatusCondition(r.hosted(t).Status.Conditions, kind)
	if c == nil {
		return ""
	}
	return fmt.Sprintf("%s %s %s", c.Status, c.Reason, c.Message)
}

// wantEvents compares the events since the previous call.
func (r *controllerFixture) wantEvents(t *testing.T, what string, want ...string) {
	t.Helper()
	expect.Equal(t, want, controllertest.Events(r.recorder), "%s: events", what)
}

// statusWrites counts the writes of statuses so far.
func (r *controllerFixture) statusWrites() int {
	count := 0
	for _, action := range r.annex.Actions() {
		if action.Matches("update", "hostedresources/status") {
			count++
		}
	}
	return count
}

// settle waits until the controller is idle, delays included.
func settle() {
	time.Sleep(5 * time.Second)
	synctest.Wait()
}

func TestFollowsItsDefinition(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := run(t)
		r.objects.Store(3)
		r.define(t)
		if r.hosted(t) == nil {
			t.Fatal("no hosted resource was made")
		}
		if got := r.hosted(t).Status; got.Phase != hostingv1alpha1.HostedResourcePending || got.DefinitionUID != "7" {
			t.Errorf("status before there is a Store: %+v, want phase Pending and definition 7", got)
		}
		r.place(t)
		made := r.hosted(t)
		if made.Status.Phase != hostingv1alpha1.HostedResourceHosted || made.Status.Objects != 3 || made.Status.Bytes != 300 || made.Status.StoredBytes != 60 {
			t.Errorf("status %+v, want phase Hosted, 3 objects and 300 bytes", made.Status)
		}
		expect.Delete(t, r.definitions.ApiextensionsV1().CustomResourceDefinitions(), widgets)
		settle()
		if left := r.hosted(t); left != nil {
			t.Errorf("the hosted resource outlived its definition: %+v", left.Status)
		}
	})
}

func TestIsMadeAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := run(t)
		r.define(t)
		expect.Delete(t, r.annex.HostingV1alpha1().HostedResources(), widgets)
		settle()
		if r.hosted(t) == nil {
			t.Error("a hosted resource that was deleted while its resource is served was not made again")
		}
	})
}

func TestAdoptsAndKeepsWhatUsersMake(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := run(t)
		mine := &hosted{ObjectMeta: metav1.ObjectMeta{Name: widgets}, Spec: hostingv1alpha1.HostedResourceSpec{Priority: 7}}
		expect.Create(t, r.annex.HostingV1alpha1().HostedResources(), mine)
		settle()
		if got := r.hosted(t).Status.Phase; got != hostingv1alpha1.HostedResourcePending {
			t.Errorf("phase before there is a definition: %s, want Pending", got)
		}
		r.define(t)
		r.place(t)
		adopted := r.hosted(t)
		if adopted.Status.Phase != hostingv1alpha1.HostedResourceHosted || adopted.Spec.Priority != 7 {
			t.Errorf("phase %s and spec %+v, want Hosted with priority 7", adopted.Status.Phase, adopted.Spec)
		}
		expect.Delete(t, r.definitions.ApiextensionsV1().CustomResourceDefinitions(), widgets)
		settle()
		kept := r.hosted(t)
		if kept == nil {
			t.Fatal("a user's hosted resource was deleted with its definition")
		}
		if kept.Status.Phase != hostingv1alpha1.HostedResourcePending || kept.Status.DefinitionUID != "" {
			t.Errorf("status after the definition went: %+v, want phase Pending and no definition", kept.Status)
		}
	})
}

func TestUsageUnderLoad(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := run(t)
		r.define(t)
		r.place(t)
		before := r.statusWrites()
		const seconds, perSecond = 20, 100
		resource := schema.ParseGroupResource(widgets)
		for range seconds * perSecond {
			r.objects.Add(1)
			r.UsageChanged(resource)
			time.Sleep(time.Second / perSecond)
		}
		settle()
		if got := r.statusWrites() - before; got < seconds-2 || got > seconds+2 {
			t.Errorf("status written %d times in %d s of load, want about once per second", got, seconds)
		}
		if got := r.hosted(t).Status.Objects; got != seconds*perSecond {
			t.Errorf("%d objects after the load, want %d", got, seconds*perSecond)
		}
		before = r.statusWrites()
		r.UsageChanged(resource)
		r.AllUsageChanged()
		settle()
		if got := r.statusWrites() - before; got != 0 {
			t.Errorf("status written %d times although nothing changed", got)
		}
	})
}

// TestConflictsUnderLoad: a cache that lags behind another writer makes each write conflict.
func TestConflictsUnderLoad(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := run(t)
		r.define(t)
		r.place(t)
		r.annex.PrependReactor("update", "hostedresources", func(clienttesting.Action) (bool, runtime.Object, error) {
			return true, nil, apierrors.NewConflict(hostingv1alpha1.Resource("hostedresources"), widgets, errors.New("changed"))
		})
		before := r.statusWrites()
		const seconds, perSecond = 20, 100
		for range seconds * perSecond {
			r.objects.Add(1)
			r.UsageChanged(schema.ParseGroupResource(widgets))
			time.Sleep(time.Second / perSecond)
		}
		if got := r.statusWrites() - before; got > seconds+2 {
			t.Errorf("%d attempts to write the status in %d s, want about one per second", got, seconds)
		}
	})
}

func TestUsageThatBecomesKnown(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := run(t)
		r.unknown.Store(true)
		r.objects.Store(3)
		r.define(t)
		r.place(t)
		if got := r.hosted(t).Status.Objects; got != 0 {
			t.Errorf("%d objects while the usage is not known, want 0", got)
		}
		r.unknown.Store(false)
		r.AllUsageChanged()
		settle()
		if got := r.hosted(t).Status.Objects; got != 3 {
			t.Errorf("%d objects once the usage is known, want 3", got)
		}
	})
}

func TestFollowsItsStore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := run(t)
		r.define(t)
		before := r.statusWrites()
		busy := ready(metav1.ConditionTrue, "")
		busy.Status.Objects = 1000
		if _, err := r.annex.HostingV1alpha1().Stores().UpdateStatus(t.Context(), busy, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		settle()
		if got := r.statusWrites() - before; got != 0 {
			t.Errorf("status written %d times for other numbers of the store", got)
		}
		if _, err := r.annex.HostingV1alpha1().Stores().UpdateStatus(t.Context(), ready(metav1.ConditionFalse, "down"), metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		settle()
		for _, c := range r.hosted(t).Status.Conditions {
			if c.Type == hostingv1alpha1.HostedResourceStoreReady && c.Status != metav1.ConditionFalse {
				t.Errorf("StoreReady is %s although the store is not ready", c.Status)
			}
		}
	})
}
