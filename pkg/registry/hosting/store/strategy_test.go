// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/test/expect"
)

// stored returns a stored Store.
func stored() *v1alpha1.Store {
	return &v1alpha1.Store{
		ObjectMeta: metav1.ObjectMeta{Name: "fast", Generation: 3, Labels: map[string]string{"disk": "ssd"}},
		Spec:       v1alpha1.StoreSpec{Embedded: &v1alpha1.EmbeddedStore{}},
		Status:     v1alpha1.StoreStatus{Objects: 7, Version: "3.7.3"},
	}
}

func TestPrepareForCreate(t *testing.T) {
	t.Parallel()
	got, want := stored(), stored()
	newStrategy(nil).PrepareForCreate(t.Context(), got)
	want.Generation = 1
	want.Status = v1alpha1.StoreStatus{}
	want.Finalizers = []string{v1alpha1.StoreFinalizer}
	expect.Equal(t, want, got, "new Store")
}

func TestPrepareForUpdate(t *testing.T) {
	t.Parallel()
	change := stored()
	change.Spec.Unschedulable, change.Status.Objects = true, 8
	got, want := change.DeepCopy(), stored()
	newStrategy(nil).PrepareForUpdate(t.Context(), got, stored())
	want.Spec.Unschedulable, want.Generation = true, 4
	expect.Equal(t, want, got, "update")
	got, want = change.DeepCopy(), stored()
	newStrategy(nil).ForStatus().PrepareForUpdate(t.Context(), got, stored())
	want.Status.Objects = 8
	expect.Equal(t, want, got, "status update")
	if _, ok := newStrategy(nil).GetResetFields()[fieldpath.APIVersion(v1alpha1.SchemeGroupVersion.String())]; !ok {
		t.Error("no reset fields of v1alpha1")
	}
}

func TestUpdatesAreValidated(t *testing.T) {
	t.Parallel()
	invalid := stored()
	invalid.ResourceVersion = "1"
	invalid.Spec.Embedded = nil
	if errs := newStrategy(nil).ValidateUpdate(t.Context(), invalid, stored()); len(errs) == 0 {
		t.Error("update: no error for an invalid spec")
	}
	embedded, external := stored(), stored()
	embedded.Name, external.Name, external.ResourceVersion = "default", "default", "1"
	external.Spec = v1alpha1.StoreSpec{Etcd: &v1alpha1.EtcdStore{Endpoints: []string{"https://etcd:2379"}, KeyPrefix: "/annex"}}
	for caller, want := range map[string]int{"system:apiserver": 0, "admin": 1} {
		ctx := request.WithUser(t.Context(), &user.DefaultInfo{Name: caller})
		if errs := newStrategy(nil).ValidateUpdate(ctx, external, embedded); len(errs) != want {
			t.Errorf("%s changes the etcd of the Store default: %v", caller, errs.ToAggregate())
		}
	}
	if errs := newStrategy(nil).ForStatus().ValidateUpdate(t.Context(), invalid, stored()); len(errs) != 0 {
		t.Errorf("status update: errors of the spec: %v", errs.ToAggregate())
	}
	invalid.Status.Objects = -1
	if errs := newStrategy(nil).ForStatus().ValidateUpdate(t.Context(), invalid, stored()); len(errs) != 1 {
		t.Errorf("status update: %d errors for an invalid status, want 1", len(errs))
	}
}
