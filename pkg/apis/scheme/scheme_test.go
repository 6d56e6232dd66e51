// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package scheme

import (
	"reflect"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/annex-dev/annex/pkg/test/expect"
)

// hubKinds returns the internal object kinds, each with its list kind: what a
// registry can store.
func hubKinds(t *testing.T) []schema.GroupVersionKind {
	t.Helper()
	var kinds []schema.GroupVersionKind
	for gvk := range Scheme.AllKnownTypes() {
		if gvk.Version != runtime.APIVersionInternal || strings.HasSuffix(gvk.Kind, "List") {
			continue
		}
		if Scheme.Recognizes(gvk.GroupVersion().WithKind(gvk.Kind + "List")) {
			kinds = append(kinds, gvk)
		}
	}
	return kinds
}

func TestEveryHubKindHasAPreferredVersion(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, hub := range hubKinds(t) {
		seen[hub.GroupKind().String()] = true
		versions := Scheme.PrioritizedVersionsForGroup(hub.Group)
		if len(versions) == 0 {
			t.Errorf("%s: group has no preferred version", hub)
			continue
		}
		object, err := Scheme.New(hub)
		if err != nil {
			t.Errorf("%s: %v", hub, err)
			continue
		}
		versioned, err := Scheme.ConvertToVersion(object, versions[0])
		if err != nil {
			t.Errorf("%s: converting to %s: %v", hub, versions[0], err)
			continue
		}
		if got, want := versioned.GetObjectKind().GroupVersionKind(), versions[0].WithKind(hub.Kind); got != want {
			t.Errorf("%s: converted to %s, want %s", hub, got, want)
		}
	}
	for _, kind := range []string{
		"Namespace", "ConfigMap", "Secret", "ServiceAccount", "Event", "Event.events.k8s.io", "Lease.coordination.k8s.io",
		"Store.hosting.annex.dev", "HostedResource.hosting.annex.dev",
	} {
		if !seen[kind] {
			t.Errorf("%s has no internal version", kind)
		}
	}
}

func TestStatusBelongsToNoGroup(t *testing.T) {
	t.Parallel()
	gvks, unversioned, err := Scheme.ObjectKinds(&metav1.Status{})
	expect.NoError(t, err, "ObjectKinds")
	want := []schema.GroupVersionKind{{Version: "v1", Kind: "Status"}}
	if !unversioned || !reflect.DeepEqual(gvks, want) {
		t.Errorf("Status is %v, unversioned %t; want %v, true", gvks, unversioned, want)
	}
}

func TestParameterCodec(t *testing.T) {
	t.Parallel()
	for _, version := range Scheme.PrioritizedVersionsAllGroups() {
		var options metav1.ListOptions
		if err := ParameterCodec.DecodeParameters(map[string][]string{"limit": {"7"}}, version, &options); err != nil {
			t.Errorf("%s: %v", version, err)
			continue
		}
		if options.Limit != 7 {
			t.Errorf("%s: limit %d, want 7", version, options.Limit)
		}
	}
}
