// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package hostedresource

import (
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/storage/watchcache"
)

// fakeCaches are the caches of one resource.
type fakeCaches struct {
	usage   watchcache.Usage
	reduced hostingv1alpha1.Cache
}

func (c *fakeCaches) Usage(schema.GroupResource) (watchcache.Usage, bool) { return c.usage, true }

func (c *fakeCaches) Reduced(schema.GroupResource) (hostingv1alpha1.Cache, string, bool) {
	return c.reduced, "The budget is exceeded", c.reduced != ""
}

func (c *fakeCaches) AddHandler(func(schema.GroupResource)) func() { return func() {} }

func TestCachedAsSpecified(t *testing.T) {
	t.Parallel()
	caches := &fakeCaches{}
	r := &reconciler{caches: caches, now: func() time.Time { return epoch }}
	resource := &hosted{ObjectMeta: metav1.ObjectMeta{Name: "widgets.example.com", Generation: 3}}
	status := &resource.Status
	for i, step := range []struct {
		reduced hostingv1alpha1.Cache
		want    metav1.ConditionStatus
		message string
	}{
		{"", "", ""},
		{hostingv1alpha1.CacheCompressed, metav1.ConditionFalse, "The budget is exceeded. Its objects are kept as with spec.cache=Compressed."},
		{hostingv1alpha1.CacheNone, metav1.ConditionFalse, "spec.cache=None"},
		{"", metav1.ConditionTrue, "The memory budget allows"},
	} {
		caches.reduced = step.reduced
		r.setCachedAsSpecified(status, resource)
		got := meta.FindStatusCondition(status.Conditions, hostingv1alpha1.HostedResourceCachedAsSpecified)
		if got == nil && step.want == "" {
			continue
		}
		if got == nil || got.Status != step.want || !strings.Contains(got.Message, step.message) || got.ObservedGeneration != 3 {
			t.Errorf("step %d: the condition is %+v, want %s with %q", i, got, step.want, step.message)
		}
	}
}
