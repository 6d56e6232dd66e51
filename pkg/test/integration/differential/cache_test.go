// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package differential

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/annex-dev/annex/pkg/test/expect"
	"github.com/annex-dev/annex/pkg/test/poll"
)

var hostedResources = schema.GroupVersionResource{Group: "hosting.annex.dev", Version: "v1alpha1", Resource: "hostedresources"}

// TestMemoryBudget compares reads while the budget leaves no memory for watch caches with reads from
// an upstream without watch caches.
func TestMemoryBudget(t *testing.T) {
	p := newPair(t)
	p.startUpstream(t, "--watch-cache=false")
	p.startAnnex(t, "--cache-memory-budget=1Ki")
	versions := fill(t, p)
	for _, plural := range []string{"widgets", "planets"} {
		p.expectCondition(t, plural, metav1.ConditionFalse, "MemoryBudgetExceeded", "of --cache-memory-budget=")
	}
	t.Run("gets and lists", func(t *testing.T) { p.compareAll(t, every(4, reads(versions)), 10) })
	t.Run("watches", func(t *testing.T) { p.compareAll(t, every(2, watches(versions)), 50) })
	p.setCache(t, "None")
	p.expectCondition(t, "planets", metav1.ConditionTrue, "WithinMemoryBudget", "allows what spec.cache specifies")
}

// expectCondition waits for the condition CachedAsSpecified.
func (p *pair) expectCondition(t *testing.T, plural string, status metav1.ConditionStatus, reason, message string) {
	t.Helper()
	poll.UntilNoError(t, plural+" have the condition CachedAsSpecified", func() error {
		hosted, err := p.annex.dynamic.Resource(hostedResources).Get(t.Context(), plural+"."+group, metav1.GetOptions{})
		if err != nil {
			return err
		}
		conditions, _, _ := unstructured.NestedSlice(hosted.Object, "status", "conditions")
		for _, c := range conditions {
			if c := c.(map[string]any); c["type"] == "CachedAsSpecified" && c["status"] == string(status) && c["reason"] == reason &&
				strings.Contains(c["message"].(string), message) {
				return nil
			}
		}
		return fmt.Errorf("the conditions are %v", conditions)
	})
}

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

// cachedBytes returns the metric of a resource.
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
