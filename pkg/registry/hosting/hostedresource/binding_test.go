// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package hostedresource_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/utils/ptr"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/apiserver/scheme"
	"github.com/annex-dev/annex/pkg/registry/hosting/hostedresource"
	"github.com/annex-dev/annex/pkg/test/expect"
)

// stores has the Stores; "leaving" is being deleted.
type stores []string

func (s stores) Get(_ context.Context, name string, _ *metav1.GetOptions) (runtime.Object, error) {
	if !slices.Contains(s, name) {
		return nil, apierrors.NewNotFound(hostingv1alpha1.Resource("stores"), name)
	}
	store := &hostingv1alpha1.Store{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if name == "leaving" {
		store.DeletionTimestamp = ptr.To(metav1.Now())
	}
	return store, nil
}

// migrations has Migrations of taken.example.com.
type migrations struct{ rest.Lister }

func (migrations) List(context.Context, *internalversion.ListOptions) (runtime.Object, error) {
	list := &hostingv1alpha1.MigrationList{}
	for _, phase := range []hostingv1alpha1.MigrationPhase{hostingv1alpha1.MigrationSwitching, hostingv1alpha1.MigrationFollowing} {
		list.Items = append(list.Items, hostingv1alpha1.Migration{
			ObjectMeta: metav1.ObjectMeta{UID: types.UID(phase)},
			Spec:       hostingv1alpha1.MigrationSpec{Resource: "taken.example.com", StoreName: "default"},
			Status:     hostingv1alpha1.MigrationStatus{FromStoreName: "fast", Phase: phase},
		})
	}
	return list, nil
}

func newBinding(storage *hostedresource.Storage, names ...string) *hostedresource.BindingREST {
	return hostedresource.NewBindingREST(scheme.Scheme, storage.HostedResource.REST, stores(names), migrations{})
}

func bind(t *testing.T, endpoint *hostedresource.BindingREST, name string, binding *hostingv1alpha1.HostedResourceBinding) (*hostingv1alpha1.HostedResourceBinding, error) {
	t.Helper()
	answer, err := endpoint.Create(requestContext(t), name, binding, rest.ValidateAllObjectFunc, &metav1.CreateOptions{})
	if err != nil {
		return nil, err
	}
	return answer.(*hostingv1alpha1.HostedResourceBinding), nil
}

func TestBind(t *testing.T) {
	t.Parallel()
	storage := newStorage(t)
	endpoint := newBinding(storage, "default", "fast", "leaving")
	create(t, storage, "free.example.com", "")
	create(t, storage, "taken.example.com", "fast")
	create(t, storage, "other.example.com", "fast")
	for name, test := range map[string]struct {
		resource string
		binding  hostingv1alpha1.HostedResourceBinding
		// is checks the type of the error, words are part of its message.
		is    func(error) bool
		words string
	}{
		"no such resource":             {"lost.example.com", hostingv1alpha1.HostedResourceBinding{StoreName: "fast"}, apierrors.IsNotFound, "lost.example.com"},
		"no Store":                     {"free.example.com", hostingv1alpha1.HostedResourceBinding{}, apierrors.IsInvalid, "storeName: Required"},
		"no Store's name":              {"free.example.com", hostingv1alpha1.HostedResourceBinding{StoreName: "A_B"}, apierrors.IsInvalid, "storeName: Invalid"},
		"unknown Store":                {"free.example.com", hostingv1alpha1.HostedResourceBinding{StoreName: "slow"}, apierrors.IsInvalid, `storeName: Not found: "slow"`},
		"Store that is being deleted":  {"free.example.com", hostingv1alpha1.HostedResourceBinding{StoreName: "leaving"}, apierrors.IsConflict, `"leaving": it is being deleted`},
		"another name":                 {"free.example.com", hostingv1alpha1.HostedResourceBinding{ObjectMeta: metav1.ObjectMeta{Name: "x.example.com"}, StoreName: "fast"}, apierrors.IsInvalid, "metadata.name"},
		"another UID":                  {"free.example.com", hostingv1alpha1.HostedResourceBinding{ObjectMeta: metav1.ObjectMeta{UID: "1"}, StoreName: "fast"}, apierrors.IsConflict, "it has the UID"},
		"an older version":             {"free.example.com", hostingv1alpha1.HostedResourceBinding{ObjectMeta: metav1.ObjectMeta{ResourceVersion: "1"}, StoreName: "fast"}, apierrors.IsConflict, "it has been changed"},
		"placed elsewhere":             {"taken.example.com", hostingv1alpha1.HostedResourceBinding{StoreName: "default"}, apierrors.IsConflict, `it is on the Store "fast" already`},
		"for no Migration":             {"taken.example.com", hostingv1alpha1.HostedResourceBinding{StoreName: "default", MigrationUID: "1"}, apierrors.IsConflict, `no Migration with the UID 1 switches it from the Store "fast" to "default"`},
		"for another Store":            {"taken.example.com", hostingv1alpha1.HostedResourceBinding{StoreName: "leaving", MigrationUID: "Switching"}, apierrors.IsConflict, "no Migration"},
		"for one that does not switch": {"taken.example.com", hostingv1alpha1.HostedResourceBinding{StoreName: "default", MigrationUID: "Following"}, apierrors.IsConflict, "no Migration"},
		"for one of another resource":  {"other.example.com", hostingv1alpha1.HostedResourceBinding{StoreName: "default", MigrationUID: "Switching"}, apierrors.IsConflict, "no Migration"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := bind(t, endpoint, test.resource, &test.binding)
			if err == nil || !test.is(err) || !strings.Contains(err.Error(), test.words) {
				t.Errorf("got %v, want an error with %q", err, test.words)
			}
		})
	}

	for range 2 { // asking again is fine
		answer, err := bind(t, endpoint, "free.example.com", &hostingv1alpha1.HostedResourceBinding{StoreName: "fast"})
		expect.NoError(t, err)
		if answer.StoreName != "fast" || answer.Name != "free.example.com" || answer.UID == "" {
			t.Errorf("answer %+v", answer)
		}
		got, err := storage.HostedResource.Get(requestContext(t), "free.example.com", &metav1.GetOptions{})
		expect.NoError(t, err)
		hosted := got.(*hostingv1alpha1.HostedResource)
		scheduled := meta.FindStatusCondition(hosted.Status.Conditions, hostingv1alpha1.HostedResourceScheduled)
		if hosted.Spec.StoreName != "fast" || hosted.Generation != 2 || scheduled == nil || scheduled.Status != metav1.ConditionTrue || scheduled.ObservedGeneration != 2 {
			t.Errorf("Store %q, generation %d, Scheduled %+v; want fast, 2 and True", hosted.Spec.StoreName, hosted.Generation, scheduled)
		}
	}
}

func TestBindWithoutConsequences(t *testing.T) {
	t.Parallel()
	storage := newStorage(t)
	endpoint := newBinding(storage, "fast")
	create(t, storage, "free.example.com", "")
	binding := &hostingv1alpha1.HostedResourceBinding{StoreName: "fast"}

	refuse := func(context.Context, runtime.Object) error { return errors.New("by a policy") }
	if _, err := endpoint.Create(requestContext(t), "free.example.com", binding, refuse, &metav1.CreateOptions{}); err == nil || err.Error() != "by a policy" {
		t.Errorf("refused by admission: %v", err)
	}
	dryRun := &metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
	if _, err := endpoint.Create(requestContext(t), "free.example.com", binding, rest.ValidateAllObjectFunc, dryRun); err != nil {
		t.Errorf("dry run: %v", err)
	}
	got, err := storage.HostedResource.Get(requestContext(t), "free.example.com", &metav1.GetOptions{})
	expect.NoError(t, err)
	if on := got.(*hostingv1alpha1.HostedResource).Spec.StoreName; on != "" {
		t.Errorf("it was placed on %q", on)
	}
}

func TestBindForAMigration(t *testing.T) {
	t.Parallel()
	storage := newStorage(t)
	endpoint := newBinding(storage, "default", "fast")
	create(t, storage, "taken.example.com", "fast")
	for range 2 { // asking again is fine
		_, err := bind(t, endpoint, "taken.example.com", &hostingv1alpha1.HostedResourceBinding{StoreName: "default", MigrationUID: "Switching"})
		expect.NoError(t, err)
		got, err := storage.HostedResource.Get(requestContext(t), "taken.example.com", &metav1.GetOptions{})
		expect.NoError(t, err)
		hosted := got.(*hostingv1alpha1.HostedResource)
		scheduled := meta.FindStatusCondition(hosted.Status.Conditions, hostingv1alpha1.HostedResourceScheduled)
		if hosted.Spec.StoreName != "default" || hosted.Generation != 2 || scheduled.Reason != "Moved" {
			t.Errorf("Store %q, generation %d, Scheduled %+v; want default, 2 and Moved", hosted.Spec.StoreName, hosted.Generation, scheduled)
		}
	}
}
