// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package hostedresource

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	apiresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/component-base/metrics/testutil"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/storage/etcd/usage"
	"github.com/annex-dev/annex/pkg/storage/layer/limits"
	"github.com/annex-dev/annex/pkg/test/expect"
)

func limited(whole, namespace hostingv1alpha1.ResourceList) *hostingv1alpha1.HostedResource {
	return &hostingv1alpha1.HostedResource{
		ObjectMeta: metav1.ObjectMeta{Name: widgets, Generation: 1},
		Spec:       hostingv1alpha1.HostedResourceSpec{StoreName: "default", Limits: whole, NamespaceLimits: namespace},
	}
}

func quantities(objects, storage string) hostingv1alpha1.ResourceList {
	list := hostingv1alpha1.ResourceList{}
	if objects != "" {
		list[hostingv1alpha1.ResourceObjects] = apiresource.MustParse(objects)
	}
	if storage != "" {
		list[hostingv1alpha1.ResourceStorage] = apiresource.MustParse(storage)
	}
	return list
}

func TestWithinLimitsCondition(t *testing.T) {
	t.Parallel()
	many := map[string]usage.Usage{}
	for i := range 5 {
		many[fmt.Sprintf("ns-%d", i)] = usage.Usage{Objects: 2}
	}
	for name, tc := range map[string]struct {
		whole, namespace hostingv1alpha1.ResourceList
		used             usage.Usage
		in               map[string]usage.Usage
		want             string
	}{
		"room": {
			whole: quantities("5", "1Mi"), used: usage.Usage{Objects: 3, Bytes: 2048},
			want: "True BelowLimits objects 3 of 5, storage 2Ki of 1Mi",
		},
		"full": {
			whole: quantities("5", "1Mi"), used: usage.Usage{Objects: 5, Bytes: 2048},
			want: "False LimitReached objects 5 of 5, storage 2Ki of 1Mi",
		},
		"over": {
			whole: quantities("", "1Ki"), used: usage.Usage{Objects: 5, Bytes: 1025},
			want: "False LimitReached storage 1025 of 1Ki",
		},
		"nothing allowed": {
			whole: quantities("0", ""), want: "False LimitReached objects 0 of 0",
		},
		"the fullest namespace": {
			namespace: quantities("4", ""), in: map[string]usage.Usage{"a": {Objects: 1}, "b": {Objects: 3}, "c": {Objects: 2}},
			want: "True BelowLimits namespace b: objects 3 of 4",
		},
		"a full namespace": {
			whole: quantities("9", ""), used: usage.Usage{Objects: 3},
			namespace: quantities("2", "1Ki"), in: map[string]usage.Usage{"a": {Objects: 1}, "b": {Objects: 2}},
			want: "False NamespaceLimitReached objects 3 of 9, namespace b: objects 2 of 2",
		},
		"many full namespaces": {
			namespace: quantities("2", ""), in: many,
			want: "False NamespaceLimitReached namespace ns-0: objects 2 of 2, namespace ns-1: objects 2 of 2, namespace ns-2: objects 2 of 2 and 2 more like it",
		},
		"no objects": {
			namespace: quantities("2", ""), want: "True BelowLimits there are no objects",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := limits.Of(limited(tc.whole, tc.namespace))
			c := withinLimitsCondition(l.Utilization(tc.used), l.NamespaceUtilization(tc.in))
			if got := fmt.Sprintf("%s %s %s", c.Status, c.Reason, c.Message); got != tc.want {
				t.Errorf("got  %s\nwant %s", got, tc.want)
			}
		})
	}
}

func TestWithinLimits(t *testing.T) {
	// Not parallel: metrics are global.
	synctest.Test(t, func(t *testing.T) {
		r := run(t)
		want := func(what, condition, ratio string) {
			t.Helper()
			settle()
			if got := r.condition(t, hostingv1alpha1.HostedResourceWithinLimits); got != condition {
				t.Errorf("%s: the condition is %q, want %q", what, got, condition)
			}
			expected := ""
			if ratio != "" {
				expected = "# HELP annex_hostedresource_limit_used_ratio [ALPHA] Used part of a limit of a HostedResource, at most 1; for the limits in each namespace, " +
					"that of the fullest namespace. Only the replica that runs the controllers reports it.\n# TYPE annex_hostedresource_limit_used_ratio gauge\n" +
					`annex_hostedresource_limit_used_ratio{hostedresource="widgets.example.com",limit="objects",scope="whole"} ` + ratio + "\n"
			}
			expect.Succeeds(t, testutil.CollectAndCompare(limitUsedRatio, strings.NewReader(expected), "annex_hostedresource_limit_used_ratio"), "%s", what)
		}
		r.unknown.Store(true)
		r.objects.Store(3)
		hostedResources := r.annex.HostingV1alpha1().HostedResources()
		expect.Create(t, hostedResources, limited(quantities("4", ""), nil))
		want("unknown usage", "", "")
		r.unknown.Store(false)
		r.AllUsageChanged()
		want("below the limit", "True BelowLimits objects 3 of 4", "0.75")
		r.objects.Store(4)
		r.UsageChanged(schema.ParseGroupResource(widgets))
		want("full", "False LimitReached objects 4 of 4", "1")
		r.wantEvents(t, "full", "Warning LimitReached objects 4 of 4")

		hosted := r.hosted(t)
		hosted.Spec.Limits = nil
		expect.Update(t, hostedResources, hosted)
		want("without limits", "", "")
	})
}
