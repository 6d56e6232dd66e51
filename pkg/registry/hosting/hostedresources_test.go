// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package hosting

import (
	"context"
	"errors"
	"slices"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/registry/typed"
	"github.com/annex-dev/annex/pkg/registry/typed/typedtest"
	"github.com/annex-dev/annex/pkg/test/expect"
)

func createHosted(t *testing.T, endpoints typed.Endpoints, name, storeName string) *v1alpha1.HostedResource {
	t.Helper()
	created, err := typedtest.Create(typedtest.Request(t, ""), endpoints["hostedresources"], &v1alpha1.HostedResource{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       v1alpha1.HostedResourceSpec{StoreName: storeName, SchedulerName: v1alpha1.DefaultSchedulerName},
	})
	expect.NoError(t, err, "create %s", name)
	return created
}

func getHosted(t *testing.T, endpoints typed.Endpoints, name string) *v1alpha1.HostedResource {
	t.Helper()
	got, err := endpoints.REST("hostedresources").Get(typedtest.Request(t, ""), name, &metav1.GetOptions{})
	expect.NoError(t, err)
	return got.(*v1alpha1.HostedResource)
}

func TestSelectByStore(t *testing.T) {
	t.Parallel()
	endpoints, _ := newEndpoints(t)
	createHosted(t, endpoints, "gadgets.example.com", "fast")
	createHosted(t, endpoints, "gizmos.example.com", "")
	createHosted(t, endpoints, "widgets.example.com", "default")
	for selector, want := range map[string][]string{
		"spec.storeName=default":  {"widgets.example.com"},
		"spec.storeName=":         {"gizmos.example.com"},
		"spec.storeName!=default": {"gadgets.example.com", "gizmos.example.com"},
		"spec.storeName=fast,metadata.name=widgets.example.com": nil,
	} {
		options := &internalversion.ListOptions{FieldSelector: fields.ParseSelectorOrDie(selector)}
		list, err := endpoints.REST("hostedresources").List(typedtest.Request(t, ""), options)
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

func TestStoreIsSetByBindingOnly(t *testing.T) {
	t.Parallel()
	endpoints, _ := newEndpoints(t)
	created := createHosted(t, endpoints, "widgets.example.com", "fast")
	scheduled := meta.FindStatusCondition(created.Status.Conditions, v1alpha1.HostedResourceScheduled)
	if scheduled == nil || scheduled.Status != metav1.ConditionTrue || scheduled.Reason != "Preassigned" || scheduled.ObservedGeneration != 1 {
		t.Errorf("condition Scheduled of one created with a Store: %+v, want True and Preassigned", scheduled)
	}
	moved := created.DeepCopy()
	moved.Spec.StoreName = "slow"
	if _, err := typedtest.Update(typedtest.Request(t, ""), endpoints["hostedresources"], moved); !apierrors.IsInvalid(err) {
		t.Errorf("update to another Store: %v, want invalid", err)
	}
}

func TestDefinedResourceCannotBeDeleted(t *testing.T) {
	t.Parallel()
	endpoints, _ := newEndpoints(t)
	resources, ctx := endpoints.REST("hostedresources"), typedtest.Request(t, "")
	for name, uid := range map[string]types.UID{"gadgets.example.com": "", "widgets.example.com": "1"} {
		object := createHosted(t, endpoints, name, "fast")
		object.Status.DefinitionUID = uid
		_, err := typedtest.Update(ctx, endpoints["hostedresources/status"], object)
		expect.NoError(t, err)
	}
	if err := typedtest.Delete(ctx, resources, "widgets.example.com"); !apierrors.IsConflict(err) {
		t.Errorf("delete one whose definition exists: %v, want a conflict", err)
	}
	_, err := resources.DeleteCollection(ctx, rest.ValidateAllObjectFunc, &metav1.DeleteOptions{}, &internalversion.ListOptions{})
	if !apierrors.IsConflict(err) {
		t.Errorf("delete all: %v, want a conflict", err)
	}
	getHosted(t, endpoints, "widgets.example.com")
	createHosted(t, endpoints, "gizmos.example.com", "")
	refused := errors.New("refused by admission")
	_, _, err = resources.Delete(ctx, "gizmos.example.com", func(context.Context, runtime.Object) error { return refused }, &metav1.DeleteOptions{})
	if !errors.Is(err, refused) {
		t.Errorf("delete one without a definition: %v, want the error of admission", err)
	}
	expect.Succeeds(t, typedtest.Delete(ctx, resources, "gizmos.example.com"), "delete one without a definition")
}
