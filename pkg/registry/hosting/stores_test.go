// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package hosting

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/registry/typed"
	"github.com/annex-dev/annex/pkg/registry/typed/typedtest"
	"github.com/annex-dev/annex/pkg/test/expect"
)

func newEtcdStore(name string) *v1alpha1.Store {
	object := &v1alpha1.Store{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if name == v1alpha1.DefaultStoreName {
		object.Spec.Embedded = &v1alpha1.EmbeddedStore{}
	} else {
		object.Spec.Etcd = &v1alpha1.EtcdStore{Endpoints: []string{"http://127.0.0.1:2379"}, KeyPrefix: "/annex"}
	}
	return object
}

func createStores(t *testing.T, endpoints typed.Endpoints, names ...string) {
	t.Helper()
	for _, name := range names {
		_, err := typedtest.Create(typedtest.Request(t, ""), endpoints["stores"], newEtcdStore(name))
		expect.NoError(t, err, "create the Store %s", name)
	}
}

func TestDefaultStoreCannotBeDeleted(t *testing.T) {
	t.Parallel()
	endpoints, _ := newEndpoints(t)
	createStores(t, endpoints, v1alpha1.DefaultStoreName, "fast", "slow")
	stores, ctx := endpoints.REST("stores"), typedtest.Request(t, "")
	if err := typedtest.Delete(ctx, stores, v1alpha1.DefaultStoreName); !apierrors.IsForbidden(err) {
		t.Errorf("delete the default Store: %v, want forbidden", err)
	}
	expect.Succeeds(t, typedtest.Delete(ctx, stores, "fast"), "delete another Store")
	_, err := stores.DeleteCollection(ctx, rest.ValidateAllObjectFunc, &metav1.DeleteOptions{}, &internalversion.ListOptions{})
	if !apierrors.IsForbidden(err) {
		t.Errorf("delete all Stores: %v, want forbidden", err)
	}
	// The controller, which removes the finalizer, does not run here.
	deleted, err := stores.Get(ctx, "fast", &metav1.GetOptions{})
	expect.NoError(t, err)
	if object := deleted.(*v1alpha1.Store); object.DeletionTimestamp == nil || !slices.Contains(object.Finalizers, v1alpha1.StoreFinalizer) {
		t.Errorf("the Store that was deleted: %+v", object.ObjectMeta)
	}
	_, err = stores.Get(ctx, v1alpha1.DefaultStoreName, &metav1.GetOptions{})
	expect.NoError(t, err, "the default Store")
}

func TestUsedStoreCannotBeDeleted(t *testing.T) {
	t.Parallel()
	endpoints, _ := newEndpoints(t)
	createStores(t, endpoints, "fast", "slow", "source", "target")
	stores, ctx := endpoints.REST("stores"), typedtest.Request(t, "")
	for _, name := range []string{"a", "b", "c", "d", "e", "f", "g"} {
		createHosted(t, endpoints, name+".example.com", "fast")
	}
	createMigration(t, endpoints, "now", "elsewhere.example.com", "source", "target", v1alpha1.MigrationCleaning)
	createMigration(t, endpoints, "past", "elsewhere.example.com", "slow", "target", v1alpha1.MigrationCompleted)

	err := typedtest.Delete(ctx, stores, "fast")
	if !apierrors.IsConflict(err) || !strings.Contains(err.Error(), "it holds a.example.com, b.example.com, c.example.com, d.example.com, e.example.com and 2 more") {
		t.Errorf("delete a Store that holds resources: %v", err)
	}
	for _, name := range []string{"source", "target"} {
		if err := typedtest.Delete(ctx, stores, name); !apierrors.IsConflict(err) || !strings.Contains(err.Error(), "it is used by the Migrations now:") {
			t.Errorf("delete the %s of a Migration: %v", name, err)
		}
	}
	found, err := stores.Get(ctx, "target", &metav1.GetOptions{})
	expect.NoError(t, err)
	lost := found.(*v1alpha1.Store)
	lost.Status.Conditions = []metav1.Condition{{Type: v1alpha1.StoreReady, Status: metav1.ConditionFalse, Reason: "Unreachable", LastTransitionTime: metav1.Now()}}
	_, err = typedtest.Update(ctx, endpoints["stores/status"], lost)
	expect.NoError(t, err)
	expect.Succeeds(t, typedtest.Delete(ctx, stores, "target"), "delete the target of a Migration after its etcd was lost")

	refused := errors.New("refused by admission")
	_, _, err = stores.Delete(ctx, "slow", func(context.Context, runtime.Object) error { return refused }, &metav1.DeleteOptions{})
	if !errors.Is(err, refused) {
		t.Errorf("delete an unused Store: %v, want the error of admission", err)
	}
	expect.Succeeds(t, typedtest.Delete(ctx, stores, "slow"), "delete an unused Store")
}

func TestStoresAreStoredAsJSON(t *testing.T) {
	t.Parallel()
	endpoints, etcd := newEndpoints(t)
	createStores(t, endpoints, "fast")
	var got v1alpha1.Store
	expect.NoError(t, json.Unmarshal(etcd.Stored(t, "stores", "fast"), &got))
	if got.APIVersion != v1alpha1.SchemeGroupVersion.String() || got.Kind != "Store" {
		t.Errorf("stored as %s %s", got.APIVersion, got.Kind)
	}
}

func TestOnlyAnnexMovesTheDefaultStore(t *testing.T) {
	t.Parallel()
	embedded, external := newEtcdStore("default"), newEtcdStore("default")
	external.Spec = newEtcdStore("fast").Spec
	for caller, want := range map[string]int{"system:apiserver": 0, "admin": 1} {
		if errs := mainStoreStrategy.ValidateUpdate(typedtest.RequestAs(t, "", caller), external, embedded); len(errs) != want {
			t.Errorf("%s changes the etcd of the Store default: %v", caller, errs.ToAggregate())
		}
	}
}
