// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package hostedresource_test

import (
	"context"
	"slices"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/apiserver/scheme"
	"github.com/annex-dev/annex/pkg/registry/hosting/hostedresource"
	"github.com/annex-dev/annex/pkg/registry/typed/typedtest"
	"github.com/annex-dev/annex/pkg/test/expect"
)

func newStorage(t *testing.T) *hostedresource.Storage {
	t.Helper()
	storage, err := hostedresource.NewStorage(scheme.Scheme, typedtest.NewStorage(t, v1alpha1.SchemeGroupVersion))
	expect.NoError(t, err, "NewStorage")
	t.Cleanup(storage.HostedResource.Destroy)
	return storage
}

// requestContext is the context of a request for a cluster-scoped object.
func requestContext(t *testing.T) context.Context {
	t.Helper()
	return request.WithNamespace(t.Context(), metav1.NamespaceNone)
}

func create(t *testing.T, storage *hostedresource.Storage, name, storeName string) *v1alpha1.HostedResource {
	t.Helper()
	object := &v1alpha1.HostedResource{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       v1alpha1.HostedResourceSpec{StoreName: storeName, SchedulerName: v1alpha1.DefaultSchedulerName},
	}
	created, err := storage.HostedResource.Create(requestContext(t), object, rest.ValidateAllObjectFunc, &metav1.CreateOptions{})
	expect.NoError(t, err, "create %q", name)
	return created.(*v1alpha1.HostedResource)
}

func TestSelectByStore(t *testing.T) {
	t.Parallel()
	storage := newStorage(t)
	create(t, storage, "gadgets.example.com", "fast")
	create(t, storage, "gizmos.example.com", "")
	create(t, storage, "widgets.example.com", "default")

	tests := map[string][]string{
		"spec.storeName=default":  {"widgets.example.com"},
		"spec.storeName=":         {"gizmos.example.com"},
		"spec.storeName!=default": {"gadgets.example.com", "gizmos.example.com"},
		"spec.storeName=fast,metadata.name=widgets.example.com": nil,
	}
	for selector, want := range tests {
		options := &internalversion.ListOptions{FieldSelector: fields.ParseSelectorOrDie(selector)}
		list, err := storage.HostedResource.List(requestContext(t), options)
		expect.NoError(t, err, "list %s", selector)
		var got []string
		for _, item := range list.(*v1alpha1.HostedResourceList).Items {
			got = append(got, item.Name)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s selects %q, want %q", selector, got, want)
		}
	}
}

func TestLife(t *testing.T) {
	t.Parallel()
	storage := newStorage(t)
	created := create(t, storage, "widgets.example.com", "")
	if created.Status.Phase != v1alpha1.HostedResourcePending || created.Generation != 1 {
		t.Errorf("created with phase %q and generation %d, want Pending and 1", created.Status.Phase, created.Generation)
	}

	binding := newBinding(storage, "default")
	if _, err := bind(t, binding, created.Name, &v1alpha1.HostedResourceBinding{StoreName: "default"}); err != nil {
		t.Fatalf("placing: %v", err)
	}
	updated, err := storage.HostedResource.Get(requestContext(t), created.Name, &metav1.GetOptions{})
	expect.NoError(t, err)
	if got := updated.(*v1alpha1.HostedResource).Generation; got != 2 {
		t.Errorf("generation %d after placing, want 2", got)
	}

	moved := updated.DeepCopyObject().(*v1alpha1.HostedResource)
	moved.Spec.StoreName = "fast"
	_, _, err = storage.HostedResource.Update(requestContext(t), moved.Name, rest.DefaultUpdatedObjectInfo(moved),
		rest.ValidateAllObjectFunc, rest.ValidateAllObjectUpdateFunc, false, &metav1.UpdateOptions{})
	if !apierrors.IsInvalid(err) {
		t.Errorf("moving: %v, want invalid", err)
	}

	hosted := updated.DeepCopyObject().(*v1alpha1.HostedResource)
	hosted.Spec.StoreName = ""
	hosted.Status.Phase = v1alpha1.HostedResourceHosted
	updated, _, err = storage.Status.Update(requestContext(t), hosted.Name, rest.DefaultUpdatedObjectInfo(hosted),
		rest.ValidateAllObjectFunc, rest.ValidateAllObjectUpdateFunc, false, &metav1.UpdateOptions{})
	expect.NoError(t, err, "update status")
	got := updated.(*v1alpha1.HostedResource)
	if got.Spec.StoreName != "default" || got.Status.Phase != v1alpha1.HostedResourceHosted || got.Generation != 2 {
		t.Errorf("after a status update: store %q, phase %q, generation %d; want default, Hosted, 2", got.Spec.StoreName, got.Status.Phase, got.Generation)
	}
}

func TestWhatIsInUseCannotBeDeleted(t *testing.T) {
	t.Parallel()
	storage := newStorage(t)
	ctx := requestContext(t)
	setDefinition := func(name string, uid types.UID) {
		t.Helper()
		object := create(t, storage, name, "fast")
		object.Status.DefinitionUID = uid
		info := rest.DefaultUpdatedObjectInfo(object)
		if _, _, err := storage.Status.Update(ctx, name, info, rest.ValidateAllObjectFunc, rest.ValidateAllObjectUpdateFunc, false, &metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	setDefinition("gadgets.example.com", "")
	setDefinition("widgets.example.com", "1")

	if _, _, err := storage.HostedResource.Delete(ctx, "widgets.example.com", rest.ValidateAllObjectFunc, &metav1.DeleteOptions{}); !apierrors.IsConflict(err) {
		t.Errorf("delete one whose definition exists: %v, want a conflict", err)
	}
	_, err := storage.HostedResource.DeleteCollection(ctx, rest.ValidateAllObjectFunc, &metav1.DeleteOptions{}, &internalversion.ListOptions{})
	if !apierrors.IsConflict(err) {
		t.Errorf("delete all: %v, want a conflict", err)
	}
	if _, err := storage.HostedResource.Get(ctx, "widgets.example.com", &metav1.GetOptions{}); err != nil {
		t.Errorf("read the one whose definition exists: %v", err)
	}
	refusal := apierrors.NewBadRequest("refused")
	create(t, storage, "gizmos.example.com", "")
	_, _, err = storage.HostedResource.Delete(ctx, "gizmos.example.com", func(context.Context, runtime.Object) error { return refusal }, &metav1.DeleteOptions{})
	if !apierrors.IsBadRequest(err) {
		t.Errorf("delete one that is free: %v, want the refusal of the validation that was passed", err)
	}
	if _, _, err := storage.HostedResource.Delete(ctx, "gizmos.example.com", rest.ValidateAllObjectFunc, &metav1.DeleteOptions{}); err != nil {
		t.Errorf("delete one that is free: %v", err)
	}
}
