// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package differential

import (
	"fmt"
	"regexp"
	"strconv"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/annex-dev/annex/pkg/test/expect"
	"github.com/annex-dev/annex/pkg/test/poll"
)

var hostedResources = schema.GroupVersionResource{Group: "hosting.annex.dev", Version: "v1alpha1", Resource: "hostedresources"}

// setCache sets spec.cache of the resources that fill creates, and waits until it is applied.
func (p *pair) setCache(t *testing.T, form string) {
	t.Helper()
	for _, plural := range []string{"widgets", "planets"} {
		name := plural + "." + group
		before := p.cachedBytes(t, name)
		patch := fmt.Appendf(nil, `{"spec":{"cache":%q}}`, form)
		_, err := p.annex.dynamic.Resource(hostedResources).Patch(t.Context(), name, types.MergePatchType, patch, metav1.PatchOptions{})
		expect.NoError(t, err)
		poll.UntilNoError(t, plural+" are kept "+form, func() error {
			now := p.cachedBytes(t, name)
			if form == "Compressed" && now >= before || form == "Plain" && now <= before || form == "None" && now != 0 {
				return fmt.Errorf("the caches had %v bytes, and have %v", before, now)
			}
			return nil
		})
	}
}

// cachedBytes returns the metric of a resource. The replica that runs the controllers is not
// the one with encoded objects.
func (p *pair) cachedBytes(t *testing.T, name string) float64 {
	t.Helper()
	answer, err := p.annex.read(t.Context(), request{path: "/metrics"})
	expect.NoError(t, err)
	line := regexp.MustCompile(`annex_hostedresource_cache_bytes{hostedresource="` + regexp.QuoteMeta(name) + `",part="objects"} (\S+)`).FindStringSubmatch(answer.body)
	if line == nil {
		t.Fatalf("there is no metric of the cache of %s", name)
	}
	bytes, err := strconv.ParseFloat(line[1], 64)
	expect.NoError(t, err)
	return bytes
}
