// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package defaultstore

import (
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"

	"github.com/annex-dev/annex/pkg/apis/hosting"
)

func TestValidate(t *testing.T) {
	t.Parallel()
	store := func(name string) runtime.Object { return &hosting.Store{ObjectMeta: metav1.ObjectMeta{Name: name}} }
	tests := map[string]struct {
		resource schema.GroupResource
		name     string
		old      runtime.Object
		refused  bool
	}{
		"default":                    {hosting.Resource("stores"), "default", store("default"), true},
		"default, object not known":  {hosting.Resource("stores"), "default", nil, true},
		"default, in a collection":   {hosting.Resource("stores"), "", store("default"), true},
		"another":                    {hosting.Resource("stores"), "fast", store("fast"), false},
		"another, in a collection":   {hosting.Resource("stores"), "", store("fast"), false},
		"a default of another group": {schema.GroupResource{Group: "example.com", Resource: "stores"}, "default", store("default"), false},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			attributes := admission.NewAttributesRecord(nil, tc.old, hosting.Kind("Store").WithVersion("v1alpha1"), "", tc.name,
				tc.resource.WithVersion("v1alpha1"), "", admission.Delete, &metav1.DeleteOptions{}, false, nil)
			err := New().Validate(t.Context(), attributes, nil)
			if apierrors.IsForbidden(err) != tc.refused {
				t.Errorf("got %v, want refused: %v", err, tc.refused)
			}
		})
	}
}
