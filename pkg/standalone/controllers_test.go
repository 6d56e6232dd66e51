// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package standalone

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensionsfake "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset/fake"
	apiextensionsinformers "k8s.io/apiextensions-apiserver/pkg/client/informers/externalversions"
	definitioninformers "k8s.io/apiextensions-apiserver/pkg/client/informers/externalversions/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	metadatafake "k8s.io/client-go/metadata/fake"
	"k8s.io/client-go/tools/cache"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/controller"
	"github.com/annex-dev/annex/pkg/controller/framework/controllertest"
	annexfake "github.com/annex-dev/annex/pkg/generated/clientset/versioned/fake"
	annexinformers "github.com/annex-dev/annex/pkg/generated/informers/externalversions"
	"github.com/annex-dev/annex/pkg/staticobjects"
	"github.com/annex-dev/annex/pkg/storage/etcd/stores"
	"github.com/annex-dev/annex/pkg/storage/etcd/usage"
	"github.com/annex-dev/annex/pkg/storage/layer/corruption"
	"github.com/annex-dev/annex/pkg/storage/watchcache"
	"github.com/annex-dev/annex/pkg/test/expect"
)

const widgets = "widgets.example.com"

// tracker is a UsageTracker that a test moves.
type tracker struct {
	mu       sync.Mutex
	handlers map[*usage.Handler]bool
	objects  int64
}

func (t *tracker) AddHandler(handler usage.Handler) (remove func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.handlers == nil {
		t.handlers = map[*usage.Handler]bool{}
	}
	t.handlers[&handler] = true
	return func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		delete(t.handlers, &handler)
	}
}

func (t *tracker) AddStoreHandler(usage.StoreHandler) (remove func()) { return func() {} }

func (t *tracker) Namespaces(string, schema.GroupResource) map[string]usage.Usage { return nil }

func (t *tracker) In(_ string, resource schema.GroupResource) (usage.Usage, bool) {
	return t.Usage(resource), true
}

func (t *tracker) Store(string) (usage.Usage, bool) { return t.Usage(schema.GroupResource{}), true }

func (t *tracker) Usage(schema.GroupResource) usage.Usage {
	t.mu.Lock()
	defer t.mu.Unlock()
	return usage.Usage{Objects: t.objects, Bytes: 100 * t.objects}
}

func (t *tracker) set(objects int64) {
	t.mu.Lock()
	t.objects = objects
	handlers := slices.Collect(maps.Keys(t.handlers))
	t.mu.Unlock()
	for _, handler := range handlers {
		(*handler).UsageChanged(schema.ParseGroupResource(widgets))
	}
}

// noStores has no connection to any Store.
type noStores struct{}

func (noStores) Get(string) (*stores.Store, error)              { return nil, errors.New("no Store") }
func (noStores) AddListener(func(store string)) (remove func()) { return func() {} }

// annex stands for the server that the controllers run in: its informers run as
// long as it does.
type annex struct {
	config controller.Config
	usage  *tracker

	kube    informers.SharedInformerFactory
	crds    apiextensionsinformers.SharedInformerFactory
	hosting annexinformers.SharedInformerFactory
}

// newAnnex is a server over clients that keep objects in memory.
func newAnnex(t *testing.T) *annex {
	t.Helper()
	annexKube, annexHosting := fake.NewClientset(), annexfake.NewClientset()
	annexAPIExtensions := apiextensionsfake.NewClientset(&apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: widgets}})
	a := &annex{
		usage:   &tracker{},
		kube:    informers.NewSharedInformerFactory(annexKube, 0),
		crds:    apiextensionsinformers.NewSharedInformerFactory(annexAPIExtensions, 0),
		hosting: annexinformers.NewSharedInformerFactory(annexHosting, 0),
	}
	a.config = controller.Config{
		AnnexKube:                     annexKube,
		AnnexAPIExtensions:            annexAPIExtensions,
		AnnexHosting:                  annexHosting,
		AnnexMetadata:                 metadatafake.NewSimpleMetadataClient(metadatafake.NewTestScheme()),
		Mode:                          &Controllers{Informers: a.kube},
		AnnexHostedResourceInformer:   a.hosting.Hosting().V1alpha1().HostedResources(),
		AnnexMigrationInformer:        a.hosting.Hosting().V1alpha1().Migrations(),
		AnnexStoreInformer:            a.hosting.Hosting().V1alpha1().Stores(),
		AnnexInjectionProfileInformer: a.hosting.Hosting().V1alpha1().InjectionProfiles(),
		AnnexStaticSourceInformer:     a.hosting.Hosting().V1alpha1().StaticSources(),
		StaticSources:                 staticobjects.NewSources(),
		StaticSettled:                 func() {},
		AnnexDefinitionInformer:       a.crds.Apiextensions().V1().CustomResourceDefinitions(),
		AnnexWholeDefinitions:         a.crds.Apiextensions().V1().CustomResourceDefinitions(),
		Usage:                         a.usage,
		Stores:                        noStores{},
		Unreadable:                    corruption.NewRegistry(),
		Caches:                        watchcache.NewBudget(0),
		DefaultStore:                  hostingv1alpha1.StoreSpec{Embedded: &hostingv1alpha1.EmbeddedStore{}},
	}
	a.config.RequestInformers()
	return a
}

// start runs the informers until the returned function is called.
func (a *annex) start(t *testing.T) (stop func()) {
	t.Helper()
	return controllertest.Start(t, func(ctx context.Context) { <-ctx.Done() }, a.kube, a.crds, a.hosting)
}

// lead runs the controllers of one leadership until the returned function is called.
func (a *annex) lead(t *testing.T) (stop func()) {
	t.Helper()
	controllers, err := controller.New(a.config)
	expect.NoError(t, err)
	return controllertest.Start(t, controllers.Run)
}

// TestRun runs all controllers in several leaderships: each must have an effect, and no
// goroutine may be left when the context is done. A synctest bubble that still has
// goroutines when its test returns fails.
func TestRun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		annex := newAnnex(t)
		stop := annex.start(t)
		defer stop()
		expect.NoError(t, controller.Bootstrap(t.Context(), annex.config))
		hosting := annex.config.AnnexHosting.HostingV1alpha1()
		for led := range int64(3) {
			resign := annex.lead(t)
			time.Sleep(5 * time.Second)
			annex.usage.set(3 + led)
			time.Sleep(5 * time.Second)
			if hosted, err := hosting.HostedResources().Get(t.Context(), widgets, metav1.GetOptions{}); err != nil || hosted.Status.Objects != 3+led {
				t.Errorf("leadership %d: hosted resource %+v, error %v, want one with %d objects", led, hosted, err, 3+led)
			}
			if store, err := hosting.Stores().Get(t.Context(), "default", metav1.GetOptions{}); err != nil || len(store.Status.Conditions) == 0 || store.Status.Objects != 3+led {
				t.Errorf("leadership %d: store %+v, error %v, want one with a status and %d objects", led, store, err, 3+led)
			}
			resign()
			if left := len(annex.usage.handlers); left != 0 {
				t.Errorf("leadership %d left %d handlers of usage behind", led, left)
			}
		}
	})
}

// TestEndOfLeadershipRemovesHandlers counts the handlers that a leadership leaves on the server's informers.
func TestEndOfLeadershipRemovesHandlers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		annex := newAnnex(t)
		counted := &countingInformer{SharedIndexInformer: annex.config.AnnexDefinitionInformer.Informer()}
		annex.config.AnnexDefinitionInformer = countedDefinitions{annex.config.AnnexDefinitionInformer, counted}
		stop := annex.start(t)
		defer stop()
		resign := annex.lead(t)
		synctest.Wait()
		if counted.handlers == 0 {
			t.Error("no controller follows definitions")
		}
		resign()
		if counted.handlers != 0 {
			t.Errorf("%d handlers are left", counted.handlers)
		}
	})
}

// countingInformer counts the handlers that were added and not removed.
type countingInformer struct {
	cache.SharedIndexInformer
	handlers int
}

func (i *countingInformer) AddEventHandler(handler cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error) {
	i.handlers++
	return i.SharedIndexInformer.AddEventHandler(handler)
}

func (i *countingInformer) RemoveEventHandler(handle cache.ResourceEventHandlerRegistration) error {
	i.handlers--
	return i.SharedIndexInformer.RemoveEventHandler(handle)
}

type countedDefinitions struct {
	definitioninformers.CustomResourceDefinitionInformer
	counted cache.SharedIndexInformer
}

func (d countedDefinitions) Informer() cache.SharedIndexInformer { return d.counted }

func TestNewFailsOnInformersThatStopped(t *testing.T) {
	t.Parallel()
	annex := newAnnex(t)
	annex.start(t)()
	if _, err := controller.New(annex.config); err == nil {
		t.Error("controllers were made that would never see anything")
	}
	if left := len(annex.usage.handlers); left != 0 {
		t.Errorf("%d handlers of usage are left", left)
	}
}
