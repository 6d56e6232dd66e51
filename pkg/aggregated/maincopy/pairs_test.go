// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package maincopy

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/annex-dev/annex/pkg/test/expect"
)

var (
	widgets = Resource{Kind: "Widget", Namespaced: true, Stored: schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}}
	zones   = Resource{Kind: "Zone", Stored: schema.GroupVersionResource{Group: "example.com"}}
)

func reference(apiVersion, kind, name string, uid types.UID) metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: apiVersion, Kind: kind, Name: name, UID: uid}
}

// TestPairIsOneObject maps only references that name the object with all they have: tenants write references with
// the UIDs of others' objects.
func TestPairIsOneObject(t *testing.T) {
	t.Parallel()
	pairs := NewPairs("example.com", widgets, zones)
	pairs.add(object{"widget", "prod", "shop", "annex"}, "main")
	pairs.add(object{"zone", "", "north", "annex-zone"}, "main-zone")
	gone := pairs.markGone(object{"widget", "evil", "none", "victim"})
	for name, tc := range map[string]struct {
		namespace string
		reference metav1.OwnerReference
		want      types.UID
	}{
		"the owner":                       {"prod", reference("example.com/v1", "Widget", "shop", "annex"), "main"},
		"another version":                 {"prod", reference("example.com/v2", "Widget", "shop", "annex"), "main"},
		"the kind in lower case":          {"prod", reference("example.com/v1", "widget", "shop", "annex"), "main"},
		"a cluster-scoped owner":          {"prod", reference("example.com/v1", "Zone", "north", "annex-zone"), "main-zone"},
		"another namespace":               {"evil", reference("example.com/v1", "Widget", "shop", "annex"), "annex"},
		"another name":                    {"prod", reference("example.com/v1", "Widget", "other", "annex"), "annex"},
		"another kind":                    {"prod", reference("example.com/v1", "Zone", "shop", "annex"), "annex"},
		"another group":                   {"prod", reference("apps/v1", "Widget", "shop", "annex"), "annex"},
		"a kind that is not the group's":  {"prod", reference("example.com/v1", "Deployment", "shop", "annex"), "annex"},
		"an owner that is gone":           {"evil", reference("example.com/v1", "Widget", "none", "victim"), gone},
		"the UID of an owner that is not": {"prod", reference("apps/v1", "Deployment", "shop", "victim"), "victim"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			expect.Equal(t, tc.want, pairs.inMain(tc.namespace, tc.reference))
		})
	}
}

// again has the keys of objects to write again.
type again []string

func (a *again) Again(key string) { *a = append(*a, key) }

// TestPairs writes an object again when its owner gets a UID in the main cluster.
func TestPairs(t *testing.T) {
	t.Parallel()
	got, pairs := &again{}, NewPairs("example.com", widgets)
	for range 2 {
		pairs.wait("annex", waiter{got, "default/dependant"})
	}
	for range 2 {
		pairs.add(object{"widget", "default", "owner", "annex"}, "main")
	}
	expect.Equal(t, again{"default/dependant"}, *got)
}
