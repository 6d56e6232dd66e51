// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package crdsync

import (
	"context"
	"sync"
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
	"k8s.io/apimachinery/pkg/watch"
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
	stored                 stored
}

// stored is where annex keeps the widgets.
type stored struct {
	mu sync.Mutex
	// objects are there, and late come as soon as the widgets are frozen.
	objects, late int64
	// frozen is since when, and freezes counts how often.
	frozen, freezes int64
}

func (s *stored) Freeze(context.Context) (int64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.freezes++
	s.frozen, s.objects, s.late = s.freezes, s.objects+s.late, 0
	return s.frozen, nil
}

func (s *stored) Thaw(_ context.Context, revision int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.frozen == revision {
		s.frozen = 0
	}
	return nil
}

func (s *stored) Frozen(context.Context) (int64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.frozen, nil
}

func (s *stored) Objects(context.Context) (int64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.objects, nil
}

// wantFrozen fails unless the widgets are frozen, or are not.
func (r *fixture) wantFrozen(want bool) {
	r.Helper()
	if revision, _ := r.stored.Frozen(r.Context()); revision != 0 != want {
		r.Errorf("frozen: %t, want %t", revision != 0, want)
	}
}

// wantRoute fails unless annex answers, or has left the APIService to kube-apiserver.
func (r *fixture) wantRoute(annex bool) {
	r.Helper()
	current, err := r.mainAPIServices.ApiregistrationV1().APIServices().Get(r.Context(), "v1."+groupName, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		r.Fatal(err)
	}
	if is := err == nil && current.Spec.Service != nil; is != annex {
		r.Errorf("annex answers: %t, want %t", is, annex)
	}
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
		PublishedBy:             publishedBy,
		MainObjects:             r.mainObjects,
		MainAPIServices:         r.mainAPIServices.ApiregistrationV1().APIServices(),
		MainDefinitions:         r.main.ApiextensionsV1().CustomResourceDefinitions(),
		MainDefinitionInformer:  main.Apiextensions().V1().CustomResourceDefinitions(),
		MainAPIServiceInformer:  apiServices.Apiregistration().V1().APIServices(),
		AnnexObjects:            r.annexObjects,
		AnnexStored:             func(string) (Freezable, error) { return &r.stored, nil },
		AnnexDefinitions:        r.annexDefinitions.ApiextensionsV1().CustomResourceDefinitions(),
		AnnexHostedResources:    r.annex.HostingV1alpha1().HostedResources(),
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

// setHosted makes the group one that annex serves.
func (r *fixture) setHosted() {
	r.Helper()
	r.define(crd(widgets, labelled))
	r.establish(widgets)
	if !r.isCleared() {
		r.Fatalf("not cleared: %+v", r.hosted(widgets).Status)
	}
	r.publish()
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

func (r *fixture) createInMain(name string) {
	r.Helper()
	_, err := r.mainObjects.Resource(widgetsV1).Namespace("ns").Create(r.Context(), widget(name), metav1.CreateOptions{})
	expect.NoError(r, err)
	settle()
}

func (r *fixture) deleteInMain(name string) {
	r.Helper()
	expect.NoError(r, r.mainObjects.Resource(widgetsV1).Namespace("ns").Delete(r.Context(), name, metav1.DeleteOptions{}))
	settle()
}

// fakeWatches has watches on the main cluster's objects see nothing but what the test
// tells them.
func (r *fixture) fakeWatches() <-chan *watch.FakeWatcher {
	made := make(chan *watch.FakeWatcher, 10)
	r.mainObjects.PrependWatchReactor("widgets", func(kubetesting.Action) (bool, watch.Interface, error) {
		watcher := watch.NewFake()
		made <- watcher
		return true, watcher, nil
	})
	return made
}

// openWatches counts the watches that are kept.
func (r *fixture) openWatches() int {
	r.watches.mu.Lock()
	defer r.watches.mu.Unlock()
	return len(r.watches.open)
}

func TestTakesOverAndFollows(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := run(t)
		watches := r.fakeWatches()
		r.setHosted()
		watching := <-watches
		if got := r.openWatches(); got != 1 || watching.IsStopped() {
			t.Errorf("%d watches just after the switch, want 1", got)
		}
		time.Sleep(grace)
		settle()
		if got := r.openWatches(); got != 0 || !watching.IsStopped() {
			t.Errorf("%d watches some time after the switch, want none", got)
		}
		r.redefine(crd(widgets, labelled, shortName))
		if got := r.followerOf(widgets).Spec.Names.ShortNames; len(got) != 1 {
			t.Errorf("short names %v, want what the main cluster has", got)
		}
		before := len(r.annexDefinitions.Actions()) + len(r.annex.Actions()) + len(r.mainObjects.Actions())
		time.Sleep(time.Hour)
		synctest.Wait()
		if after := len(r.annexDefinitions.Actions()) + len(r.annex.Actions()) + len(r.mainObjects.Actions()); after != before {
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
	})
}

func TestSlipsInBeforeTheSwitch(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := run(t)
		r.define(crd(widgets, labelled))
		r.establish(widgets)
		r.createInMain("late")
		r.wantCondition(widgets, reasonObjectsAppeared)
		if r.isCleared() {
			t.Error("the takeover is still cleared")
		}
		r.deleteInMain("late")
		if !r.isCleared() {
			t.Error("the takeover is not cleared again")
		}
	})
}

func TestSlipsInAfterTheSwitch(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := run(t)
		r.setHosted()
		r.createInMain("late")
		r.wantCondition(widgets, reasonObjectsAppeared)
		if r.isCleared() {
			t.Error("the takeover is still cleared")
		}
		r.wantRoute(false)
	})
}

func TestSlipsInAfterAnnexHasObjects(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := run(t)
		r.setHosted()
		r.stored.objects = 1
		r.createInMain("late")
		r.wantCondition(widgets, reasonObjectsAppeared)
		r.wantRoute(true)
		if r.stored.freezes > 0 {
			t.Error("writes were stopped for nothing")
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		r.wantCondition(widgets, reasonObjectsAppeared)
		expect.Delete(r, r.annex.HostingV1alpha1().HostedResources(), widgets)
		settle()
		r.wantCondition(widgets, reasonSynced)
	})
}

// TestWrittenWhileGivenBack: an object written after the first count makes annex keep the
// group.
func TestWrittenWhileGivenBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := run(t)
		r.setHosted()
		r.stored.late = 1
		r.createInMain("late")
		r.wantCondition(widgets, reasonObjectsAppeared)
		r.wantRoute(true)
		r.wantFrozen(false)
	})
}

// TestFrozenUntilTakenOver: writes that come late are not acknowledged.
func TestFrozenUntilTakenOver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := run(t)
		r.setHosted()
		r.createInMain("late")
		r.wantRoute(false)
		time.Sleep(time.Hour)
		settle()
		r.wantFrozen(true)
		r.deleteInMain("late")
		time.Sleep(pollInterval)
		settle()
		if !r.isCleared() {
			t.Error("not cleared again")
		}
		r.wantFrozen(false)
	})
}

// TestFinishesAReturn: another replica had frozen the group and got no further.
func TestFinishesAReturn(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		objects   int64
		wantAnnex bool
	}{"no objects": {0, false}, "objects": {1, true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := run(t)
				r.setHosted()
				// This term has yet to look.
				r.freezer.known = map[frozenKey]int64{}
				r.stored.frozen, r.stored.freezes, r.stored.objects = 7, 7, tc.objects
				r.redefine(crd(widgets, labelled, shortName))
				r.wantRoute(tc.wantAnnex)
				// Without objects on either side the group is taken over once more.
				r.wantFrozen(false)
			})
		})
	}
}

// TestThawsWhatIsAnnexsOwn: once the main cluster has no definition there is nothing to
// give back.
func TestThawsWhatIsAnnexsOwn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := run(t)
		r.setHosted()
		r.createInMain("late")
		r.wantFrozen(true)
		expect.Delete(r, r.main.ApiextensionsV1().CustomResourceDefinitions(), widgets)
		settle()
		r.wantFrozen(false)
	})
}

// TestWatchEnds: what was not watched is listed again.
func TestWatchEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := run(t)
		watches := r.fakeWatches()
		r.define(crd(widgets, labelled))
		r.establish(widgets)
		first := <-watches
		first.Stop()
		settle()
		if len(watches) != 1 || !r.isCleared() {
			t.Fatalf("%d more watches after the first ended, cleared: %v; want 1, cleared", len(watches), r.isCleared())
		}
		second := <-watches
		// This one is not seen by a watch.
		expect.NoError(r, r.mainObjects.Tracker().Create(widgetsV1, widget("unseen"), "ns"))
		second.Error(&metav1.Status{Code: 410})
		settle()
		r.wantCondition(widgets, reasonObjectsExist)
		if r.isCleared() {
			t.Error("cleared although there is an object")
		}
	})
}

// TestAnswerOfAnnexIsNotMains: in the cache the main cluster still serves the group,
// but it was annex that did.
func TestAnswerOfAnnexIsNotMains(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := run(t, widget("annexs own"))
		switched := local("v1")
		switched.Spec.Service = &apiregistrationv1.ServiceReference{Namespace: "annex-system", Name: "annex"}
		r.mainAPIServices.PrependReactor("get", "apiservices", func(kubetesting.Action) (bool, runtime.Object, error) { return true, switched, nil })
		r.define(crd(widgets, labelled))
		r.wantCondition(widgets, reasonTakingOver)
		expect.NoError(r, r.mainObjects.Tracker().Delete(widgetsV1, "ns", "annexs own"))
		time.Sleep(time.Minute)
		synctest.Wait()
		r.wantCondition(widgets, reasonTakingOver)
		if _, err := r.annexDefinitions.ApiextensionsV1().CustomResourceDefinitions().Get(t.Context(), widgets, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			t.Errorf("a definition was made: %v", err)
		}
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

// TestServesBeforeItIsCleared: annex has to answer.
func TestServesBeforeItIsCleared(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := run(t)
		var failing atomic.Bool
		failing.Store(true)
		r.annexObjects.PrependReactor("get", "widgets", func(kubetesting.Action) (bool, runtime.Object, error) {
			return failing.Load(), nil, apierrors.NewServiceUnavailable("not yet")
		})
		r.define(crd(widgets, labelled))
		r.establish(widgets)
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
