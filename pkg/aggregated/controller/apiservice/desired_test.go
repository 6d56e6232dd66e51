// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package apiservice

import (
	"testing"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
)

func TestResourcesOfAVersion(t *testing.T) {
	t.Parallel()
	changed := crd(gadgets, "v1")
	changed.Generation = 2
	for name, tc := range map[string]struct {
		definitions []*definition
		write       operation
		want        string
	}{
		"the same":                   {[]*definition{crd(widgets, "v1")}, keep, ""},
		"another kind":               {[]*definition{crd(widgets, "v1"), changed}, update, "gadgets:2,widgets:0"},
		"a kind of another version":  {[]*definition{crd(widgets, "v1"), crd(gadgets, "v2")}, keep, ""},
		"a kind that is not served":  {[]*definition{crd(widgets, "v1"), crd(gadgets, "-v1", "v2")}, keep, ""},
		"a kind that may not be had": {[]*definition{crd(widgets, "v1"), notEstablished(crd(gadgets, "v1"))}, keep, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v := viewOf([]*definition{crd(widgets, "v1")}, nil, available("v1"))
			v.annexDefinitions = tc.definitions
			got := decide(v, "v1", ours, opened)
			if got.operation != tc.write {
				t.Errorf("got write %d, want %d", got.operation, tc.write)
			}
			if got.apiService != nil && got.apiService.Annotations[hostingv1alpha1.ResourcesAnnotation] != tc.want {
				t.Errorf("got annotations %v, want resources %q", got.apiService.Annotations, tc.want)
			}
		})
	}
}
