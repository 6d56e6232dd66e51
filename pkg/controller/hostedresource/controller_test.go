// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package hostedresource

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	apiextensionsfake "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset/fake"
	apiextensionsinformers "k8s.io/apiextensions-apiserver/pkg/client/informers/externalversions"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	annexfake "github.com/annex-dev/annex/pkg/generated/clientset/versioned/fake"
	annexinformers "github.com/annex-dev/annex/pkg/generated/informers/externalversions"
	"github.com/annex-dev/annex/pkg/storage/usage"
)

// controllerFixture is a controller at work, between clients that keep objects in memory.
type controllerFixture struct {
	*Controller
	annex       *annexfake.Clientset
	definitions *apiextensionsfake.Clientset
	objects     atomic.Int64 // of each resource
	unknown     atomic.Bool
}

// run starts a controller for as long as the test lasts.
func run(t *testing.T) *controllerFixture {
	t.Helper()
	r := &controllerFixture{
		annex:       annexfake.NewClientset(ready(metav1.ConditionTrue, "")),
		definitions: apiextensionsfake.NewClientset(),
	}
	annex := annexinformers.NewSharedInformerFactory(r.annex, 0)
	definitions := apiextensionsinformers.NewSharedInformerFactory(r.definitions, 0)
	c, err := New(Config{
		AnnexHostedResources:      r.annex.HostingV1alpha1().HostedResources(),
		AnnexDefinitions:          r.definitions.ApiextensionsV1().CustomResourceDefinitions(),
		HostedResources:           annex.Hosting().V1alpha1().HostedResources(),
		Stores:                    annex.Hosting().V1alpha1().Stores(),
		CustomResourceDefinitions: definitions.Apiextensions().V1().CustomResourceDefinitions(),
		Usage: func(string, schema.GroupResource) (usage.Usage, bool) {
			objects := r.objects.Load()
			return usage.Usage{Objects: objects, Bytes: 20 * objects, PlainBytes: 100 * objects}, !r.unknown.Load()
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	r.Controller = c

	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	annex.StartWithContext(ctx)
	definitions.StartWithContext(ctx)
	go func() {
		defer close(done)
		c.Run(ctx, 2)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
		annex.Shutdown()
		definitions.Shutdown()
	})
	synctest.Wait()
	return r
}

func (r *controllerFixture) define(t *testing.T) {
	t.Helper()
	crd := established()
	crd.UID = "7"
	if _, err := r.definitions.ApiextensionsV1().CustomResourceDefinitions().Create(t.Context(), crd, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	settle()
}

// place does the scheduler's part.
func (r *controllerFixture) place(t *testing.T) {
	t.Helper()
	resource := r.hosted(t)
	resource.Spec.StoreName = "default"
	if _, err := r.annex.HostingV1alpha1().HostedResources().Update(t.Context(), resource, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	settle()
}

// hosted returns the HostedResource, or nil if there is none.
func (r *controllerFixture) hosted(t *testing.T) *hosted {
	t.Helper()
	resource, err := r.annex.HostingV1alpha1().HostedResources().Get(t.Context(), widgets, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	return resource
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

// settle lets everything happen that happens by itself, pauses included.
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
		if err := r.definitions.ApiextensionsV1().CustomResourceDefinitions().Delete(t.Context(), widgets, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
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
		if err := r.annex.HostingV1alpha1().HostedResources().Delete(t.Context(), widgets, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
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
		if _, err := r.annex.HostingV1alpha1().HostedResources().Create(t.Context(), mine, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
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
		if err := r.definitions.ApiextensionsV1().CustomResourceDefinitions().Delete(t.Context(), widgets, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
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

func TestUsageThatBecomesKnown(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := run(t)
		r.unknown.Store(true)
		r.objects.Store(3)
		r.define(t)
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
