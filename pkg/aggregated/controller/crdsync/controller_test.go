// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package crdsync

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensionsfake "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset/fake"
	apiextensionsinformers "k8s.io/apiextensions-apiserver/pkg/client/informers/externalversions"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	metadatafake "k8s.io/client-go/metadata/fake"
	kubetesting "k8s.io/client-go/testing"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	aggregatorfake "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset/fake"
	aggregatorinformers "k8s.io/kube-aggregator/pkg/client/informers/externalversions"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/controller/framework/controllertest"
	annexfake "github.com/annex-dev/annex/pkg/generated/clientset/versioned/fake"
	annexinformers "github.com/annex-dev/annex/pkg/generated/informers/externalversions"
	"github.com/annex-dev/annex/pkg/test/expect"
)

const publishedBy = "annex-system.annex"

var widgetsV1 = schema.GroupVersionResource{Group: groupName, Version: "v1", Resource: "widgets"}

// fixture is a controller at work between clients that keep objects in memory.
type fixture struct {
	*testing.T
	*Controller
	main, annexDefinitions *apiextensionsfake.Clientset
	mainObjects            *dynamicfake.FakeDynamicClient
	mainAPIServices        *aggregatorfake.Clientset
	annexObjects           *metadatafake.FakeMetadataClient
	annex                  *annexfake.Clientset
	unfrozen               atomic.Int64
	unfreezeErr            error
}

// run starts a controller for as long as the test lasts.
func run(t *testing.T, mainObjects ...runtime.Object) *fixture {
	t.Helper()
	scheme := metadatafake.NewTestScheme()
	expect.NoError(t, metav1.AddMetaToScheme(scheme))
	r := &fixture{
		T:                t,
		main:             apiextensionsfake.NewClientset(),
		annexDefinitions: apiextensionsfake.NewClientset(),
		mainObjects: dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(),
			map[schema.GroupVersionResource]string{widgetsV1: "WidgetList"}, mainObjects...),
		mainAPIServices: aggregatorfake.NewClientset(local("v1")),
		annexObjects:    metadatafake.NewSimpleMetadataClient(scheme),
		annex:           annexfake.NewClientset(&hostingv1alpha1.Store{ObjectMeta: metav1.ObjectMeta{Name: "default", UID: "data"}}),
	}
	main := apiextensionsinformers.NewSharedInformerFactory(r.main, 0)
	definitions := apiextensionsinformers.NewSharedInformerFactory(r.annexDefinitions, 0)
	apiServices := aggregatorinformers.NewSharedInformerFactory(r.mainAPIServices, 0)
	annex := annexinformers.NewSharedInformerFactory(r.annex, 0)
	c, err := New(Config{
		PublishedBy:            publishedBy,
		MainObjects:            r.mainObjects,
		MainAPIServices:        r.mainAPIServices.ApiregistrationV1().APIServices(),
		MainDefinitions:        r.main.ApiextensionsV1().CustomResourceDefinitions(),
		MainDefinitionInformer: main.Apiextensions().V1().CustomResourceDefinitions(),
		MainAPIServiceInformer: apiServices.Apiregistration().V1().APIServices(),
		Unfreeze: func(context.Context, string) error {
			r.unfrozen.Add(1)
			return r.unfreezeErr
		},
		AnnexObjects:            r.annexObjects,
		AnnexDefinitions:        r.annexDefinitions.ApiextensionsV1().CustomResourceDefinitions(),
		AnnexHostedResources:    r.annex.HostingV1alpha1().HostedResources(),
		AnnexMigrations:         r.annex.HostingV1alpha1().Migrations(),
		AnnexDefinitionInformer: definitions.Apiextensions().V1().CustomResourceDefinitions(),
		AnnexHostedInformer:     annex.Hosting().V1alpha1().HostedResources(),
		AnnexStoreInformer:      annex.Hosting().V1alpha1().Stores(),
		AnnexMigrationInformer:  annex.Hosting().V1alpha1().Migrations(),
	})
	expect.NoError(t, err)
	r.Controller = c
	controllertest.Run(t, c, 2, main, definitions, apiServices, annex)
	synctest.Wait()
	return r
}

// local is the APIService that kube-apiserver keeps for definitions.
func local(version string) *apiService {
	return &apiService{
		ObjectMeta: metav1.ObjectMeta{Name: version + "." + groupName, Labels: map[string]string{automanagedLabel: automanaged}},
		Spec:       apiregistrationv1.APIServiceSpec{Group: groupName, Version: version, GroupPriorityMinimum: 1000, VersionPriority: 100},
	}
}

// publish has the main cluster send requests to annex.
func (r *fixture) publish() {
	r.Helper()
	published := local("v1")
	published.Labels = map[string]string{hostingv1alpha1.PublishedByLabel: publishedBy, "kept": "yes"}
	published.Annotations = map[string]string{hostingv1alpha1.PublishedStoreAnnotation: "data"}
	published.Spec.Service = &apiregistrationv1.ServiceReference{Namespace: "annex-system", Name: "annex"}
	published.Spec.CABundle = []byte("CA")
	expect.Update(r, r.mainAPIServices.ApiregistrationV1().APIServices(), published)
	settle()
}

// define makes a definition in the main cluster.
func (r *fixture) define(crd *definition) {
	r.Helper()
	expect.Create(r, r.main.ApiextensionsV1().CustomResourceDefinitions(), crd)
	settle()
}

// redefine changes it.
func (r *fixture) redefine(crd *definition) {
	r.Helper()
	expect.Update(r, r.main.ApiextensionsV1().CustomResourceDefinitions(), crd)
	settle()
}

// followerOf is annex's definition.
func (r *fixture) followerOf(name string) *definition {
	r.Helper()
	return expect.Get(r, r.annexDefinitions.ApiextensionsV1().CustomResourceDefinitions(), name)
}

// isCleared reports whether the widgets may be published.
func (r *fixture) isCleared() bool {
	r.Helper()
	of := r.hosted(widgets).Status.Takeover
	return of != nil && *of == takeoverOf(r.followerOf(widgets))
}

// establish does what annex's server does with a definition.
func (r *fixture) establish(name string) {
	r.Helper()
	crd := r.followerOf(name)
	condition(apiextensionsv1.Established, apiextensionsv1.ConditionTrue, "")(crd)
	_, err := r.annexDefinitions.ApiextensionsV1().CustomResourceDefinitions().UpdateStatus(r.Context(), crd, metav1.UpdateOptions{})
	expect.NoError(r, err)
	settle()
}

// ordered is the Migration that the labels order.
func (r *fixture) ordered() *hostingv1alpha1.Migration {
	r.Helper()
	return expect.Get(r, r.annex.HostingV1alpha1().Migrations(), orderedName(groupName))
}

// progress does what the migration controller does.
func (r *fixture) progress(phase hostingv1alpha1.MigrationPhase) {
	r.Helper()
	migration := r.ordered()
	now := metav1.Now()
	migration.Status.StartTime, migration.Status.Phase = &now, phase
	_, err := r.annex.HostingV1alpha1().Migrations().UpdateStatus(r.Context(), migration, metav1.UpdateOptions{})
	expect.NoError(r, err)
	settle()
}

// setHosted makes the group one that annex serves.
func (r *fixture) setHosted() {
	r.Helper()
	r.define(crd(widgets, labelled))
	r.progress(hostingv1alpha1.MigrationPending)
	r.establish(widgets)
	if r.isCleared() {
		r.Fatal("cleared before the switch")
	}
	r.progress(hostingv1alpha1.MigrationSwitching)
	if !r.isCleared() {
		r.Fatalf("not cleared: %+v", r.hosted(widgets).Status)
	}
	r.publish()
	r.progress(hostingv1alpha1.MigrationCompleted)
	r.wantCondition(widgets, reasonSynced)
}

func (r *fixture) hosted(name string) *hosted {
	r.Helper()
	return expect.Get(r, r.annex.HostingV1alpha1().HostedResources(), name)
}

func (r *fixture) wantCondition(name, reason string) {
	r.Helper()
	if condition := syncedCondition(r.hosted(name)); condition == nil || condition.Reason != reason {
		r.Errorf("hosted resource %s has %+v, want reason %s", name, condition, reason)
	}
}

// settle lets everything happen that happens at once.
func settle() {
	time.Sleep(time.Second)
	synctest.Wait()
}

func widget(name string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": groupName + "/v1", "kind": "Widget", "metadata": map[string]any{"name": name, "namespace": "ns"},
	}}
}

func (r *fixture) deleteInMain(name string) {
	r.Helper()
	expect.NoError(r, r.mainObjects.Resource(widgetsV1).Namespace("ns").Delete(r.Context(), name, metav1.DeleteOptions{}))
	settle()
}

func TestTakesOverAndFollows(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := run(t)
		r.setHosted()
		r.redefine(crd(widgets, labelled, shortName))
		if got := r.followerOf(widgets).Spec.Names.ShortNames; len(got) != 1 {
			t.Errorf("short names %v, want what the main cluster has", got)
		}
		requests := func() int {
			return len(r.annexDefinitions.Actions()) + len(r.annex.Actions()) + len(r.mainObjects.Actions())
		}
		before := requests()
		time.Sleep(time.Hour)
		synctest.Wait()
		if after := requests(); after != before {
			t.Errorf("%d requests in an hour without news", after-before)
		}
	})
}

func TestObjectsFirstThenNone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := run(t, widget("old"))
		r.define(crd(widgets, labelled))
		r.wantCondition(widgets, reasonObjectsExist)
		if r.hosted(widgets).Annotations[hostingv1alpha1.DefinitionFromAnnotation] == "" {
			t.Error("nothing keeps the hosted resource")
		}
		if store := r.hosted(widgets).Spec.StoreName; store != "" {
			t.Errorf("it is on store %q, which the scheduler has not chosen", store)
		}
		r.deleteInMain("old")
		time.Sleep(pollInterval)
		settle()
		r.wantCondition(widgets, reasonTakingOver)
		r.ordered()
	})
}

// TestOrdersOnce: a Migration that failed is not repeated until it is deleted. One that completed does not
// count: the group was rolled back since.
func TestOrdersOnce(t *testing.T) {
	t.Parallel()
	for phase, again := range map[hostingv1alpha1.MigrationPhase]bool{
		hostingv1alpha1.MigrationFailed: false, hostingv1alpha1.MigrationCanceled: false, hostingv1alpha1.MigrationCompleted: true,
	} {
		t.Run(string(phase), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := run(t)
				r.define(crd(widgets, labelled))
				r.progress(phase)
				time.Sleep(time.Hour)
				synctest.Wait()
				if made := r.ordered().Status.Phase == ""; made != again {
					t.Errorf("another Migration: %t, want %t", made, again)
				}
				if again {
					return
				}
				r.wantCondition(widgets, reasonMoveFailed)
				expect.Delete(r, r.annex.HostingV1alpha1().Migrations(), orderedName(groupName))
				settle()
				if r.ordered().Status.Phase != "" {
					t.Error("it is not tried again")
				}
			})
		})
	}
}

// TestWithdraws: a group that is not switched after all does not count as taken over.
func TestWithdraws(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := run(t)
		r.define(crd(widgets, labelled))
		r.progress(hostingv1alpha1.MigrationPending)
		r.establish(widgets)
		r.progress(hostingv1alpha1.MigrationSwitching)
		r.progress(hostingv1alpha1.MigrationFollowing)
		if of := r.hosted(widgets).Status.Takeover; of != nil {
			t.Errorf("the takeover is %+v", of)
		}
		r.progress(hostingv1alpha1.MigrationFailed)
		r.wantCondition(widgets, reasonMoveFailed)
	})
}

func TestRefusal(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := run(t)
		r.setHosted()
		var refusing atomic.Bool
		refusing.Store(true)
		r.annexDefinitions.PrependReactor("update", "customresourcedefinitions", func(kubetesting.Action) (bool, runtime.Object, error) {
			invalid := apierrors.NewInvalid(schema.GroupKind{Kind: "CustomResourceDefinition"}, widgets, field.ErrorList{field.Invalid(field.NewPath("status", "storedVersions"), "v1", "must appear in spec")})
			return refusing.Load(), nil, invalid
		})
		r.redefine(crd(widgets, labelled, shortName))
		r.wantCondition(widgets, reasonRejected)
		refusing.Store(false)
		time.Sleep(rejectedInterval)
		settle()
		r.wantCondition(widgets, reasonSynced)
	})
}

func TestLetsGoOfHostedResources(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := run(t, widget("old"))
		r.define(crd(widgets, labelled))
		r.wantCondition(widgets, reasonObjectsExist)
		r.redefine(crd(widgets))
		if left := r.hosted(widgets); syncedCondition(left) != nil || len(left.Annotations) > 0 || left.Labels[hostingv1alpha1.AutomanagedLabel] == "" {
			t.Errorf("it still has %+v with annotations %v and labels %v", syncedCondition(left), left.Annotations, left.Labels)
		}
	})
}

// TestServesBeforeItIsCleared: annex has to serve a version before requests for it go there.
func TestServesBeforeItIsCleared(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := run(t)
		r.setHosted()
		var failing atomic.Bool
		failing.Store(true)
		r.annexObjects.PrependReactor("get", "widgets", func(kubetesting.Action) (bool, runtime.Object, error) {
			return failing.Load(), nil, apierrors.NewServiceUnavailable("not yet")
		})
		// The fake clients count no generations.
		changed := crd(widgets, labelled, v2)
		r.redefine(changed)
		follower := r.followerOf(widgets)
		follower.Generation++
		expect.Update(r, r.annexDefinitions.ApiextensionsV1().CustomResourceDefinitions(), follower)
		settle()
		if r.isCleared() {
			t.Error("cleared although annex does not serve it")
		}
		failing.Store(false)
		time.Sleep(time.Minute)
		settle()
		if !r.isCleared() {
			t.Error("not cleared although annex serves it")
		}
	})
}
