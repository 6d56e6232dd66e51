// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package store_test

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/apiserver/scheme"
	"github.com/annex-dev/annex/pkg/registry/hosting/store"
	"github.com/annex-dev/annex/pkg/registry/typed/typedtest"
	"github.com/annex-dev/annex/pkg/test/expect"
)

// newStorage returns the endpoints of Stores, with Stores of these names.
func newStorage(t *testing.T, names ...string) (*store.Storage, *typedtest.Storage) {
	t.Helper()
	etcd := typedtest.NewStorage(t, v1alpha1.SchemeGroupVersion)
	storage, err := store.NewStorage(scheme.Scheme, etcd)
	expect.NoError(t, err, "NewStorage")
	t.Cleanup(storage.Store.Destroy)
	for _, name := range names {
		object := newStore(name)
		if _, err := storage.Store.Create(requestContext(t), object, rest.ValidateAllObjectFunc, &metav1.CreateOptions{}); err != nil {
			t.Fatalf("create the Store %q: %v", name, err)
		}
	}
	return storage, etcd
}

func newStore(name string) *v1alpha1.Store {
	object := &v1alpha1.Store{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if name == v1alpha1.DefaultStoreName {
		object.Spec.Embedded = &v1alpha1.EmbeddedStore{}
	} else {
		object.Spec.Etcd = &v1alpha1.EtcdStore{Endpoints: []string{"http://127.0.0.1:2379"}, KeyPrefix: "/annex"}
	}
	return object
}

// requestContext is the context of a request for a cluster-scoped object.
func requestContext(t *testing.T) context.Context {
	t.Helper()
	return request.WithNamespace(t.Context(), metav1.NamespaceNone)
}

func exists(t *testing.T, storage *store.Storage, name string) bool {
	t.Helper()
	_, err := storage.Store.Get(requestContext(t), name, &metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		t.Fatalf("read the Store %q: %v", name, err)
	}
	return err == nil
}

func TestDefaultStoreCannotBeDeleted(t *testing.T) {
	t.Parallel()
	storage, _ := newStorage(t, v1alpha1.DefaultStoreName, "fast", "slow")
	ctx := requestContext(t)

	_, _, err := storage.Store.Delete(ctx, v1alpha1.DefaultStoreName, rest.ValidateAllObjectFunc, &metav1.DeleteOptions{})
	if !apierrors.IsForbidden(err) {
		t.Errorf("delete the default Store: %v, want forbidden", err)
	}
	if _, _, err := storage.Store.Delete(ctx, "fast", rest.ValidateAllObjectFunc, &metav1.DeleteOptions{}); err != nil {
		t.Errorf("delete another Store: %v", err)
	}
	_, err = storage.Store.DeleteCollection(ctx, rest.ValidateAllObjectFunc, &metav1.DeleteOptions{}, &internalversion.ListOptions{})
	if !apierrors.IsForbidden(err) {
		t.Errorf("delete all Stores: %v, want forbidden", err)
	}
	// The controller, which removes the finalizer, does not run here.
	deleted, err := storage.Store.Get(ctx, "fast", &metav1.GetOptions{})
	expect.NoError(t, err)
	if object := deleted.(*v1alpha1.Store); object.DeletionTimestamp == nil || !slices.Contains(object.Finalizers, v1alpha1.StoreFinalizer) {
		t.Errorf("the Store that was deleted: %+v", object.ObjectMeta)
	}
	if !exists(t, storage, v1alpha1.DefaultStoreName) {
		t.Error("the default Store is gone")
	}
}

// resources lists HostedResources.
type resources struct {
	rest.Lister
	items []v1alpha1.HostedResource
}

func (r *resources) List(_ context.Context, options *internalversion.ListOptions) (runtime.Object, error) {
	placed := slices.DeleteFunc(slices.Clone(r.items), func(resource v1alpha1.HostedResource) bool {
		return !options.FieldSelector.Matches(fields.Set{"spec.storeName": resource.Spec.StoreName})
	})
	return &v1alpha1.HostedResourceList{Items: placed}, nil
}

func TestStoreWithResourcesCannotBeDeleted(t *testing.T) {
	t.Parallel()
	storage, _ := newStorage(t, "fast", "slow", "source", "target")
	held := &resources{}
	for _, name := range []string{"a", "b", "c", "d", "e", "f", "g"} {
		held.items = append(held.items, v1alpha1.HostedResource{
			ObjectMeta: metav1.ObjectMeta{Name: name + ".example.com"}, Spec: v1alpha1.HostedResourceSpec{StoreName: "fast"},
		})
	}
	storage.Store.HoldsResources(held, moving{})
	ctx := requestContext(t)
	_, _, err := storage.Store.Delete(ctx, "fast", rest.ValidateAllObjectFunc, &metav1.DeleteOptions{})
	if !apierrors.IsConflict(err) || !strings.Contains(err.Error(), "it holds a.example.com, b.example.com, c.example.com, d.example.com, e.example.com and 2 more") {
		t.Errorf("delete a Store that holds resources: %v", err)
	}
	for _, name := range []string{"source", "target"} {
		_, _, err := storage.Store.Delete(ctx, name, rest.ValidateAllObjectFunc, &metav1.DeleteOptions{})
		if !apierrors.IsConflict(err) || !strings.Contains(err.Error(), "it is used by the Migrations now:") {
			t.Errorf("delete the %s of a Migration: %v", name, err)
		}
	}
	found, err := storage.Store.Get(ctx, "target", &metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	lost := found.(*v1alpha1.Store)
	lost.Status.Conditions = []metav1.Condition{{Type: v1alpha1.StoreReady, Status: metav1.ConditionFalse, Reason: "Unreachable", LastTransitionTime: metav1.Now()}}
	if _, _, err := storage.Status.Update(ctx, "target", rest.DefaultUpdatedObjectInfo(lost), rest.ValidateAllObjectFunc, rest.ValidateAllObjectUpdateFunc, false, &metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, _, err := storage.Store.Delete(ctx, "target", rest.ValidateAllObjectFunc, &metav1.DeleteOptions{}); err != nil {
		t.Errorf("delete the target of a Migration after its etcd was lost: %v", err)
	}
	if _, _, err := storage.Store.Delete(ctx, "slow", rest.ValidateAllObjectFunc, &metav1.DeleteOptions{}); err != nil {
		t.Errorf("delete a Store that holds none: %v", err)
	}
}

// moving has a Migration from the Store source to target, and a finished one from slow.
type moving struct{ rest.Lister }

func (moving) List(context.Context, *internalversion.ListOptions) (runtime.Object, error) {
	migration := func(name, from, to string, phase v1alpha1.MigrationPhase) v1alpha1.Migration {
		return v1alpha1.Migration{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.MigrationSpec{StoreName: to},
			Status: v1alpha1.MigrationStatus{FromStoreName: from, Phase: phase},
		}
	}
	return &v1alpha1.MigrationList{Items: []v1alpha1.Migration{
		migration("now", "source", "target", v1alpha1.MigrationCleaning), migration("past", "slow", "target", v1alpha1.MigrationCompleted),
	}}, nil
}

func TestDeleteAsksAdmission(t *testing.T) {
	t.Parallel()
	storage, _ := newStorage(t, "fast")
	refusal := apierrors.NewBadRequest("refused")
	refuse := func(context.Context, runtime.Object) error { return refusal }
	if _, _, err := storage.Store.Delete(requestContext(t), "fast", refuse, &metav1.DeleteOptions{}); !apierrors.IsBadRequest(err) {
		t.Errorf("Delete: %v, want the refusal of the validation that was passed", err)
	}
}

func TestStatusEndpoint(t *testing.T) {
	t.Parallel()
	storage, etcd := newStorage(t, "fast")
	ctx := requestContext(t)
	current, err := storage.Status.Get(ctx, "fast", &metav1.GetOptions{})
	expect.NoError(t, err, "Get")
	update := current.DeepCopyObject().(*v1alpha1.Store)
	update.Spec.Unschedulable = true
	update.Status.Objects = 7
	if _, _, err := storage.Status.Update(ctx, "fast", rest.DefaultUpdatedObjectInfo(update), rest.ValidateAllObjectFunc,
		rest.ValidateAllObjectUpdateFunc, false, &metav1.UpdateOptions{}); err != nil {
		t.Fatalf("Update: %v", err)
	}

	var got v1alpha1.Store
	expect.NoError(t, json.Unmarshal(etcd.Stored(t, "stores", "fast"), &got), "what etcd holds is not JSON")
	if got.APIVersion != v1alpha1.SchemeGroupVersion.String() || got.Kind != "Store" {
		t.Errorf("stored as %s %s", got.APIVersion, got.Kind)
	}
	if got.Spec.Unschedulable || got.Status.Objects != 7 || got.Generation != 1 {
		t.Errorf("stored spec %+v, status %+v, generation %d; want only the status changed", got.Spec, got.Status, got.Generation)
	}
}
