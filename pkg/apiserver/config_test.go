// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"testing"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
)

func TestResourcePrefixes(t *testing.T) {
	t.Parallel()
	for _, resource := range []string{"stores", "hostedresources"} {
		want := "hosting.annex.dev/" + resource
		if got := resourcePrefixes()[hostingv1alpha1.Resource(resource)]; got != want {
			t.Errorf("%s are stored under %q, want %q", resource, got, want)
		}
	}
}
