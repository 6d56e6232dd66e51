// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package differential

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/annex-dev/annex/pkg/test/expect"
	"github.com/annex-dev/annex/pkg/test/poll"
)

// compareDiscovery compares the discovery documents of versions. Upstream's resources are in no
// order.
func compareDiscovery(t *testing.T, p *pair) {
	for _, version := range []string{"v1", "v1beta1", "v2", "v3"} {
		poll.Until(t, "the documents of version "+version+" are alike", func() string {
			return cmp.Diff(resourcesOf(t, p.upstream, version), resourcesOf(t, p.annex, version))
		})
	}
}

func resourcesOf(t *testing.T, s *server, version string) metav1.APIResourceList {
	_, body, err := s.get(t.Context(), request{path: "/apis/" + group + "/" + version, accept: "application/json"})
	expect.NoError(t, err)
	var list metav1.APIResourceList
	if json.Unmarshal(body, &list) == nil {
		slices.SortFunc(list.APIResources, func(a, b metav1.APIResource) int { return strings.Compare(a.Name, b.Name) })
	}
	return list
}
