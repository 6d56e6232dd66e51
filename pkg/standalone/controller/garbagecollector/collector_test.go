// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package garbagecollector

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	apiextensionsfake "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset/fake"
	apiextensionsinformers "k8s.io/apiextensions-apiserver/pkg/client/informers/externalversions"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	metadatafake "k8s.io/client-go/metadata/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/annex-dev/annex/pkg/controller/framework/controllertest"
	"github.com/annex-dev/annex/pkg/standalone/controller/metadatainformers"
	"github.com/annex-dev/annex/pkg/test/expect"
)

// startController runs a controller over objects in memory until the test ends. It returns the
// client of its events.
func startController(t *testing.T, annexMetadata *metadatafake.FakeMetadataClient) kubernetes.Interface {
	t.Helper()
	factory := apiextensionsinformers.NewSharedInformerFactory(apiextensionsfake.NewClientset(), 0)
	verbs := metav1.Verbs{"get", "list", "watch", "delete"}
	informers, err := metadatainformers.New(metadatainformers.Config{
		AnnexMetadata: annexMetadata,
		Discover: func(context.Context) ([]*metav1.APIGroup, []*metav1.APIResourceList, error) {
			return nil, []*metav1.APIResourceList{{GroupVersion: "v1", APIResources: []metav1.APIResource{
				{Name: "configmaps", Kind: "ConfigMap", Namespaced: true, Verbs: verbs},
			}}, {GroupVersion: "example.com/v1", APIResources: []metav1.APIResource{
				{Name: "things", Kind: "Thing", Namespaced: true, Verbs: verbs}, {Name: "globals", Kind: "Global", Verbs: verbs},
				{Name: "gadgets", Kind: "Gadget", Namespaced: true, Verbs: verbs},
			}}}, nil
		},
		CustomResourceDefinitions: factory.Apiextensions().V1().CustomResourceDefinitions(),
	})
	expect.NoError(t, err)
	annexKube := fake.NewClientset()
	c := New(Config{AnnexMetadata: annexMetadata, AnnexEvents: annexKube.CoreV1(), Informers: informers})
	controllertest.Start(t, informers.Run, factory)
	controllertest.Run(t, c, 2)
	return annexKube
}

func newMetadataClient(t *testing.T, objects ...runtime.Object) *metadatafake.FakeMetadataClient {
	t.Helper()
	scheme := metadatafake.NewTestScheme()
	expect.NoError(t, metav1.AddMetaToScheme(scheme))
	return metadatafake.NewSimpleMetadataClient(scheme, objects...)
}

func newMetadata(name string, owners ...metav1.OwnerReference) *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{
		TypeMeta:   metav1.TypeMeta{APIVersion: "example.com/v1", Kind: "Thing"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name, UID: types.UID(name), ResourceVersion: "7", OwnerReferences: owners},
	}
}

// deleted returns the deletions that a client received.
func deleted(annexMetadata *metadatafake.FakeMetadataClient) []clienttesting.DeleteActionImpl {
	var found []clienttesting.DeleteActionImpl
	for _, action := range annexMetadata.Actions() {
		if deletion, ok := action.(clienttesting.DeleteActionImpl); ok {
			found = append(found, deletion)
		}
	}
	return found
}

// settle lets so much time pass that every retry was made.
func settle() {
	time.Sleep(2 * time.Minute)
	synctest.Wait()
}

func TestDeletesOnlyWhatItRead(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		annexMetadata := newMetadataClient(t, newMetadata("orphan", free("gone")), newMetadata("child", free("owner")), newMetadata("owner"), newMetadata("loner"))
		startController(t, annexMetadata)
		settle()
		deletions := deleted(annexMetadata)
		if len(deletions) != 1 || deletions[0].Name != "orphan" {
			t.Fatalf("deleted was %v, want only the one without its owner", deletions)
		}
		options := deletions[0].DeleteOptions
		if p := options.Preconditions; p == nil || p.UID == nil || *p.UID != "orphan" || p.ResourceVersion == nil || *p.ResourceVersion != "7" {
			t.Errorf("deleted on the conditions %+v, want the UID and the resource version", p)
		}
		if *options.PropagationPolicy != metav1.DeletePropagationBackground {
			t.Errorf("deleted with propagation %s", *options.PropagationPolicy)
		}
	})
}

func TestTriesAgain(t *testing.T) {
	t.Parallel()
	conflict := apierrors.NewConflict(things.GroupResource(), "orphan", errors.New("changed"))
	for name, failure := range map[string]struct {
		verb, object string
		err          error
	}{
		"an owner that cannot be read":     {"get", "gone", errors.New("no answer")},
		"a dependent that cannot be read":  {"get", "orphan", errors.New("no answer")},
		"a dependent that changed by then": {"delete", "orphan", conflict},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				annexMetadata := newMetadataClient(t, newMetadata("orphan", free("gone")))
				left := 5
				annexMetadata.PrependReactor(failure.verb, "things", func(action clienttesting.Action) (bool, runtime.Object, error) {
					named, ok := action.(interface{ GetName() string })
					if !ok || named.GetName() != failure.object || left == 0 {
						return false, nil, nil
					}
					left--
					return true, nil, failure.err
				})
				startController(t, annexMetadata)
				settle()
				_, err := annexMetadata.Tracker().Get(things.GroupVersionResource, "team", "orphan")
				if !apierrors.IsNotFound(err) || left != 0 {
					t.Errorf("after all failures but %d the dependent is there (%v)", left, err)
				}
			})
		})
	}
}

// A server that does not know a resource returns "not found" as well.
func TestTakesAMissingResourceForNoMissingOwner(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		annexMetadata := newMetadataClient(t, newMetadata("child", free("owner")))
		annexMetadata.PrependReactor("get", "things", func(action clienttesting.Action) (bool, runtime.Object, error) {
			err := apierrors.NewGenericServerResponse(404, "get", things.GroupResource(), "owner", "404 page not found", 0, true)
			return true, nil, err
		})
		startController(t, annexMetadata)
		settle()
		if deletions := deleted(annexMetadata); len(deletions) > 0 {
			t.Errorf("deleted was %v", deletions)
		}
	})
}

func TestOrphansAndLetsGo(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		now := metav1.Now()
		owner := newMetadata("owner")
		owner.DeletionTimestamp, owner.Finalizers = &now, []string{"example.com/other", metav1.FinalizerOrphanDependents}
		annexMetadata := newMetadataClient(t, owner, newMetadata("child", free("owner"), free("child")))
		startController(t, annexMetadata)
		settle()
		var patches []string
		for _, action := range annexMetadata.Actions() {
			if patch, ok := action.(clienttesting.PatchAction); ok {
				patches = append(patches, patch.GetName()+" "+string(patch.GetPatch()))
			}
		}
		child := slices.IndexFunc(patches, func(p string) bool { return strings.HasPrefix(p, "child ") })
		last := slices.IndexFunc(patches, func(p string) bool { return strings.HasPrefix(p, "owner ") })
		if child < 0 || last < child {
			t.Fatalf("patched was %q, want the child and then the owner", patches)
		}
		for _, want := range []string{`"uid":"owner"`, `"resourceVersion":"7"`, `"finalizers":["example.com/other"]`} {
			if !strings.Contains(patches[last], want) {
				t.Errorf("the owner's patch %s lacks %s", patches[last], want)
			}
		}
	})
}

// deletedWith is an owner in deletion that waits with a finalizer.
func deletedWith(finalizer string) *metav1.PartialObjectMetadata {
	now := metav1.Now()
	owner := newMetadata("owner")
	owner.DeletionTimestamp, owner.Finalizers = &now, []string{finalizer}
	return owner
}

// TestDeletionsEndWhateverOthersWrite has objects with the UID of an owner that are not its dependents,
// and cannot be changed or deleted.
func TestDeletionsEndWhateverOthersWrite(t *testing.T) {
	t.Parallel()
	evil := func(name, kind string, change func(*metav1.OwnerReference)) *metav1.PartialObjectMetadata {
		object := newMetadata(name, renamed(change))
		object.Namespace, object.Kind = "evil", kind
		if kind == "Gadget" {
			object.Namespace = "team" // those in the namespace are listed
		}
		return object
	}
	same := func(*metav1.OwnerReference) {}
	other := func(r *metav1.OwnerReference) { r.Name = "other" }
	for _, finalizer := range []string{metav1.FinalizerDeleteDependents, metav1.FinalizerOrphanDependents} {
		for name, object := range map[string]*metav1.PartialObjectMetadata{
			"in another namespace":               evil("evil", "Thing", same),
			"of another kind":                    evil("evil", "Thing", func(r *metav1.OwnerReference) { r.Kind = "Unknown" }),
			"in a resource that is not watched":  evil("evil", "Gadget", other),
			"with an apiVersion that is not one": evil("evil", "Thing", func(r *metav1.OwnerReference) { r.APIVersion = "a/b/c" }),
		} {
			t.Run(finalizer+" "+name, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					annexMetadata := newMetadataClient(t, deletedWith(finalizer), object)
					refuse := func(action clienttesting.Action) (bool, runtime.Object, error) {
						named, _ := action.(interface{ GetName() string })
						return named.GetName() == "evil", nil, errors.New("a webhook refuses it")
					}
					annexMetadata.PrependReactor("delete", "*", refuse)
					annexMetadata.PrependReactor("patch", "*", refuse)
					annexMetadata.PrependWatchReactor("gadgets", func(clienttesting.Action) (bool, watch.Interface, error) {
						return true, nil, errors.New("no answer")
					})
					startController(t, annexMetadata)
					settle()
					wantNotWaiting(t, annexMetadata)
				})
			})
		}
	}
}

// wantNotWaiting checks that the owner has no finalizer left.
func wantNotWaiting(t *testing.T, annexMetadata *metadatafake.FakeMetadataClient) {
	t.Helper()
	found, err := annexMetadata.Tracker().Get(things.GroupVersionResource, "team", "owner")
	expect.NoError(t, err)
	if left := found.(*metav1.PartialObjectMetadata).Finalizers; len(left) > 0 {
		t.Errorf("the owner waits with %v", left)
	}
}

func TestResolvesReferences(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change  func(*metav1.OwnerReference)
		deleted bool
	}{
		"the kind":                           {func(*metav1.OwnerReference) {}, true},
		"the kind in lower case":             {func(r *metav1.OwnerReference) { r.Kind = "thing" }, true},
		"a version that is not served":       {func(r *metav1.OwnerReference) { r.APIVersion = "example.com/v0" }, true},
		"a name that no object can have":     {func(r *metav1.OwnerReference) { r.Name = "a/b" }, true},
		"no name":                            {func(r *metav1.OwnerReference) { r.Name = "" }, true},
		"the kind of a list":                 {func(r *metav1.OwnerReference) { r.Kind = "ThingList" }, false},
		"the kind in other letters":          {func(r *metav1.OwnerReference) { r.Kind = "THING" }, false},
		"an apiVersion that is not one":      {func(r *metav1.OwnerReference) { r.APIVersion, r.Kind = "a/b/c", "ConfigMap" }, false},
		"no apiVersion":                      {func(r *metav1.OwnerReference) { r.APIVersion = "" }, false},
		"a name that is too long to be read": {func(r *metav1.OwnerReference) { r.Name = strings.Repeat("a", maxName+1) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				annexMetadata := newMetadataClient(t, newMetadata("orphan", renamed(test.change)))
				startController(t, annexMetadata)
				settle()
				_, err := annexMetadata.Tracker().Get(things.GroupVersionResource, "team", "orphan")
				if apierrors.IsNotFound(err) != test.deleted {
					t.Errorf("read with %v, want it deleted: %t", err, test.deleted)
				}
			})
		})
		t.Run(name+", in the foreground", func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				annexMetadata := newMetadataClient(t, deletedWith(metav1.FinalizerDeleteDependents), newMetadata("child", renamed(test.change)))
				startController(t, annexMetadata)
				settle()
				wantNotWaiting(t, annexMetadata)
			})
		})
	}
}

// TestReportsWhatADeletionWaitsFor has a dependent whose other owner cannot be read.
func TestReportsWhatADeletionWaitsFor(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		other := free("other")
		other.Kind = "Gadget"
		annexMetadata := newMetadataClient(t, deletedWith(metav1.FinalizerDeleteDependents), newMetadata("child", blocking("owner"), other))
		annexMetadata.PrependReactor("get", "gadgets", func(clienttesting.Action) (bool, runtime.Object, error) {
			return true, nil, errors.New("no answer")
		})
		annexKube := startController(t, annexMetadata)
		settle()
		events, err := annexKube.CoreV1().Events("team").List(t.Context(), metav1.ListOptions{})
		expect.NoError(t, err)
		if len(events.Items) != 1 {
			t.Fatalf("events %+v, want one", events.Items)
		}
		event := events.Items[0]
		if event.InvolvedObject.UID != "owner" || event.Reason != "DependentRemains" || !strings.Contains(event.Message, "things.example.com team/child") ||
			!strings.Contains(event.Message, "Gadget") || !strings.Contains(event.Message, "no answer") {
			t.Errorf("the event is %s about %s: %s", event.Reason, event.InvolvedObject.UID, event.Message)
		}
	})
}

// TestReadsEachOwnerAFewTimes doubles the owners of an object, which do not exist.
func TestReadsEachOwnerAFewTimes(t *testing.T) {
	t.Parallel()
	for name, refer := range map[string]func(int) metav1.OwnerReference{
		"UIDs of their own": func(i int) metav1.OwnerReference { return free(fmt.Sprint("gone-", i)) },
		"one UID": func(i int) metav1.OwnerReference {
			return renamed(func(r *metav1.OwnerReference) { r.Name = fmt.Sprint("gone-", i) })
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, owners := range []int{200, 400} {
				synctest.Test(t, func(t *testing.T) {
					orphan := newMetadata("orphan")
					for i := range owners {
						orphan.OwnerReferences = append(orphan.OwnerReferences, refer(i))
					}
					annexMetadata := newMetadataClient(t, orphan)
					startController(t, annexMetadata)
					settle()
					if requests := len(annexMetadata.Actions()); requests < owners || requests > 3*owners {
						t.Errorf("%d requests for %d owners", requests, owners)
					}
					if deletions := deleted(annexMetadata); len(deletions) != 1 {
						t.Errorf("deleted was %v, want the orphan", deletions)
					}
				})
			}
		})
	}
}
