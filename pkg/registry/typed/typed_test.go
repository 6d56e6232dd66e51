// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package typed_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/registry/rest"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/annex-dev/annex/pkg/registry/typed"
	"github.com/annex-dev/annex/pkg/registry/typed/typedtest"
	"github.com/annex-dev/annex/pkg/table"
	"github.com/annex-dev/annex/pkg/test/expect"
)

// binaryStrategy updates nothing but binaryData.
type binaryStrategy struct{ typed.BaseStrategy }

func (binaryStrategy) PrepareForUpdate(_ context.Context, obj, old runtime.Object) {
	obj.(*corev1.ConfigMap).Data = old.(*corev1.ConfigMap).Data
}

func (binaryStrategy) GetResetFields() map[fieldpath.APIVersion]*fieldpath.Set {
	return map[fieldpath.APIVersion]*fieldpath.Set{"v1": fieldpath.NewSet(fieldpath.MakePathOrDie("data"))}
}

func resource() typed.Resource {
	return typed.Resource{
		Kind:       corev1.SchemeGroupVersion.WithKind("ConfigMap"),
		ShortNames: []string{"cm"},
		Categories: []string{"all"},
		Strategy:   typed.Namespaced.CreatingOnUpdate(),
		Table:      table.New(corev1.Resource("configmaps"), table.Name[*corev1.ConfigMap]()),
	}
}

// newREST returns the main endpoint of a resource in an etcd of the test.
func newREST(t *testing.T, described typed.Resource) (*typed.REST, *typedtest.Storage) {
	t.Helper()
	etcd := typedtest.NewStorage(t, corev1.SchemeGroupVersion)
	return etcd.Endpoints(typed.NewGroup(corev1.SchemeGroupVersion, etcd, described)).REST("configmaps"), etcd
}

func TestStore(t *testing.T) {
	t.Parallel()
	described := resource()
	described.TTL = time.Hour + 500*time.Millisecond
	store, storage := newREST(t, described)

	if got := store.ShortNames(); !slices.Equal(got, []string{"cm"}) {
		t.Errorf("short names %v", got)
	}
	if got := store.Categories(); !slices.Equal(got, []string{"all"}) {
		t.Errorf("categories %v", got)
	}
	if got := store.GetSingularName(); got != "configmap" {
		t.Errorf("singular name %q", got)
	}
	if got := store.GetResetFields(); got != nil {
		t.Errorf("reset fields %v for a strategy that has none", got)
	}

	ctx := typedtest.Request(t, "ns")
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "ns"}, Data: map[string]string{"k": "v"}}
	if _, err := typedtest.Create(ctx, store, object); err != nil {
		t.Fatalf("Create: %v", err)
	}
	if storage.Stored(t, "configmaps", "ns", "a") == nil {
		t.Error("nothing stored under the key of the object")
	}
	lease, err := storage.Client.Leases(t.Context())
	expect.NoError(t, err, "Leases")
	if len(lease.Leases) != 1 {
		t.Errorf("%d etcd leases, want 1: the object has a TTL", len(lease.Leases))
	}
}

func TestSubresource(t *testing.T) {
	t.Parallel()
	store, _ := newREST(t, resource())
	binary := store.Subresource(binaryStrategy{typed.Namespaced.CreatingOnUpdate()})
	if got := binary.GetResetFields()["v1"]; got == nil || !got.Has(fieldpath.MakePathOrDie("data")) {
		t.Errorf("reset fields %v, want data", got)
	}

	ctx := typedtest.Request(t, "ns")
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "ns"}, Data: map[string]string{"k": "v"}}
	update := object.DeepCopy()
	update.Data["k"] = "changed"
	update.BinaryData = map[string][]byte{"b": []byte("x")}

	// The strategy of the resource creates on update; the subresource must not.
	_, _, err := binary.Update(ctx, "a", rest.DefaultUpdatedObjectInfo(update), rest.ValidateAllObjectFunc, rest.ValidateAllObjectUpdateFunc, true, &metav1.UpdateOptions{})
	if !apierrors.IsNotFound(err) {
		t.Fatalf("update of an object that does not exist: %v, want not found", err)
	}
	if _, err := typedtest.Create(ctx, store, object); err != nil {
		t.Fatalf("Create: %v", err)
	}
	_, _, err = binary.Update(ctx, "a", rest.DefaultUpdatedObjectInfo(update), rest.ValidateAllObjectFunc, rest.ValidateAllObjectUpdateFunc, true, &metav1.UpdateOptions{})
	expect.NoError(t, err, "Update")
	got, err := binary.Get(ctx, "a", &metav1.GetOptions{})
	expect.NoError(t, err, "Get")
	stored := got.(*corev1.ConfigMap)
	if stored.Data["k"] != "v" || string(stored.BinaryData["b"]) != "x" {
		t.Errorf("stored %v and %v, want data unchanged and binaryData updated", stored.Data, stored.BinaryData)
	}
}

// repetitiveStrategy reports each key of the data twice, and validates metadata on update as the
// generic registry does.
type repetitiveStrategy struct{ typed.BaseStrategy }

func (repetitiveStrategy) Validate(_ context.Context, obj runtime.Object) (errs field.ErrorList) {
	for key := range obj.(*corev1.ConfigMap).Data {
		err := field.Forbidden(field.NewPath("data").Key(key), "")
		errs = append(errs, err, err)
	}
	return errs
}

func (s repetitiveStrategy) ValidateUpdate(ctx context.Context, obj, _ runtime.Object) field.ErrorList {
	return append(s.Validate(ctx, obj), apivalidation.ValidateObjectMeta(&obj.(*corev1.ConfigMap).ObjectMeta, true, apivalidation.NameIsDNSSubdomain, field.NewPath("metadata"))...)
}

func TestEachErrorIsReportedOnce(t *testing.T) {
	t.Parallel()
	described := resource()
	described.Strategy = repetitiveStrategy{typed.Namespaced}
	store, _ := newREST(t, described)
	ctx := typedtest.Request(t, "ns")
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "ns"}}
	invalid := object.DeepCopy()
	invalid.Data = map[string]string{"k": "", "l": ""}
	fields := func(err error) []string {
		var status apierrors.APIStatus
		if !errors.As(err, &status) || status.Status().Details == nil {
			t.Fatalf("not an invalid object: %v", err)
		}
		var found []string
		for _, cause := range status.Status().Details.Causes {
			found = append(found, cause.Field)
		}
		slices.Sort(found)
		return found
	}

	_, err := typedtest.Create(ctx, store, invalid.DeepCopy())
	expect.Equal(t, []string{"data[k]", "data[l]"}, fields(err), "create")

	_, err = typedtest.Create(ctx, store, object)
	expect.NoError(t, err, "Create")
	invalid.Labels = map[string]string{"a b": ""}
	for name, endpoint := range map[string]rest.Updater{"update": store, "subresource": store.Subresource(described.Strategy)} {
		_, _, err = endpoint.Update(ctx, "a", rest.DefaultUpdatedObjectInfo(invalid.DeepCopy()), rest.ValidateAllObjectFunc,
			rest.ValidateAllObjectUpdateFunc, false, &metav1.UpdateOptions{})
		expect.Equal(t, []string{"data[k]", "data[l]", "metadata.labels"}, fields(err), "%s", name)
	}
}

func TestIncompleteResource(t *testing.T) {
	t.Parallel()
	described := resource()
	described.Kind = schema.GroupVersionKind{}
	if _, err := typed.NewEndpoints(nil, described); err == nil {
		t.Error("no error for a resource without a name")
	}
}
