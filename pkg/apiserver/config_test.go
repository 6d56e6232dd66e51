// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"testing"

	"github.com/annex-dev/annex/pkg/apis/hosting"
)

func TestResourcePrefixes(t *testing.T) {
	t.Parallel()
	for _, resource := range []string{"stores", "hostedresources"} {
		want := "hosting.annex.dev/" + resource
		if got := resourcePrefixes()[hosting.Resource(resource)]; got != want {
			t.Errorf("%s are stored under %q, want %q", resource, got, want)
		}
	}
}
