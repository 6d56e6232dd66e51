// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package limits

import (
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/storage/limits"
	"github.com/annex-dev/annex/pkg/storage/usage"
)

const widgets = "widgets.example.com"

// storeName is the Store of what has limits.
const storeName = "fast"

func limited(whole, namespace hostingv1alpha1.ResourceList) *hostingv1alpha1.HostedResource {
	return &hostingv1alpha1.HostedResource{
		ObjectMeta: metav1.ObjectMeta{Name: widgets, Generation: 1},
		Spec:       hostingv1alpha1.HostedResourceSpec{StoreName: storeName, Limits: whole, NamespaceLimits: namespace},
	}
}

func of(objects, storage string) hostingv1alpha1.ResourceList {
	list := hostingv1alpha1.ResourceList{}
	if objects != "" {
		list[hostingv1alpha1.ResourceObjects] = resource.MustParse(objects)
	}
	if storage != "" {
		list[hostingv1alpha1.ResourceStorage] = resource.MustParse(storage)
	}
	return list
}

func TestCondition(t *testing.T) {
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
			whole: of("5", "1Mi"), used: usage.Usage{Objects: 3, Bytes: 2048},
			want: "True BelowLimits objects 3 of 5, storage 2Ki of 1Mi",
		},
		"full": {
			whole: of("5", "1Mi"), used: usage.Usage{Objects: 5, Bytes: 2048},
			want: "False LimitReached objects 5 of 5, storage 2Ki of 1Mi",
		},
		"over": {
			whole: of("", "1Ki"), used: usage.Usage{Objects: 5, Bytes: 1025},
			want: "False LimitReached storage 1025 of 1Ki",
		},
		"nothing allowed": {
			whole: of("0", ""), want: "False LimitReached objects 0 of 0",
		},
		"the fullest namespace": {
			namespace: of("4", ""), in: map[string]usage.Usage{"a": {Objects: 1}, "b": {Objects: 3}, "c": {Objects: 2}},
			want: "True BelowLimits namespace b: objects 3 of 4",
		},
		"a full namespace": {
			whole: of("9", ""), used: usage.Usage{Objects: 3},
			namespace: of("2", "1Ki"), in: map[string]usage.Usage{"a": {Objects: 1}, "b": {Objects: 2}},
			want: "False NamespaceLimitReached objects 3 of 9, namespace b: objects 2 of 2",
		},
		"many full namespaces": {
			namespace: of("2", ""), in: many,
			want: "False NamespaceLimitReached namespace ns-0: objects 2 of 2, namespace ns-1: objects 2 of 2, namespace ns-2: objects 2 of 2 and 2 more like it",
		},
		"no objects": {
			namespace: of("2", ""), want: "True BelowLimits there are no objects",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := limits.Of(limited(tc.whole, tc.namespace))
			c := condition(l.Utilization(tc.used), l.NamespaceUtilization(tc.in))
			if got := fmt.Sprintf("%s %s %s", c.Status, c.Reason, c.Message); got != tc.want {
				t.Errorf("got  %s\nwant %s", got, tc.want)
			}
		})
	}
}
