// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/test/clients"
	"github.com/annex-dev/annex/pkg/test/expect"
)

// describe returns the type and the name of an event.
func describe(event watch.Event) string {
	accessor, err := meta.Accessor(event.Object)
	if err != nil {
		return fmt.Sprintf("%s %v", event.Type, event.Object)
	}
	return fmt.Sprintf("%s %s", event.Type, accessor.GetName())
}

func TestWatchEvents(t *testing.T) {
	t.Parallel()
	widgets := sharedAnnex(t).installCRD(t, newCRD(t, anySchema))
	before := widgets.create(t, "v1", "before", "spec: {}")
	watches := map[string]struct {
		options metav1.ListOptions
		want    []string
	}{
		"from a resource version": {metav1.ListOptions{ResourceVersion: before.GetResourceVersion()}, []string{"ADDED a", "MODIFIED a", "ADDED b", "DELETED a"}},
		"from now on":             {metav1.ListOptions{}, []string{"ADDED before", "ADDED a", "MODIFIED a", "ADDED b", "DELETED a"}},
		"by label":                {metav1.ListOptions{LabelSelector: "picked", ResourceVersion: before.GetResourceVersion()}, []string{"ADDED a", "DELETED a"}},
	}
	open := map[string]watch.Interface{}
	for name, test := range watches {
		events := widgets.watch(t, "v1", test.options)
		open[name] = events
	}
	widgets.create(t, "v1", "a", "spec: {}")
	widgets.mustPatch(t, "v1", "a", `{"metadata": {"labels": {"picked": "yes"}}}`)
	widgets.create(t, "v1", "b", "spec: {}")
	widgets.delete(t, "a")
	for name, test := range watches {
		var got []string
		for range test.want {
			got = append(got, describe(nextEvent(t, open[name])))
		}
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// TestWatchFromTheFuture: versions of another server expire, with and without a watch cache.
func TestWatchFromTheFuture(t *testing.T) {
	t.Parallel()
	a := sharedAnnex(t)
	for _, cache := range []hostingv1alpha1.Cache{hostingv1alpha1.CachePlain, hostingv1alpha1.CacheCompressed, hostingv1alpha1.CacheNone} {
		widgets := a.installCRD(t, newCRD(t, anySchema))
		widgets.waitForHostedResource(t, "is hosted", isHosted)
		_, err := a.HostedResources().Patch(t.Context(), widgets.name, types.MergePatchType, fmt.Appendf(nil, `{"spec":{"cache":%q}}`, cache), metav1.PatchOptions{})
		expect.NoError(t, err)
		made := widgets.create(t, "v1", "one", "spec: {}")
		for _, path := range []string{widgets.path("v1") + "?", widgets.path("v1") + "?fieldSelector=metadata.name%3Done&", "/api/v1/namespaces/default/configmaps?"} {
			for _, accept := range []string{"application/json", "application/json;as=Table;v=v1;g=meta.k8s.io", "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"} {
				got := a.get(t, path+"watch=true&allowWatchBookmarks=true&resourceVersion=99999999", "Accept", accept)
				if !strings.Contains(string(got.Body), `"type":"ERROR"`) || !strings.Contains(string(got.Body), `"code":410`) {
					t.Errorf("%s, a watch of %s as %s from the future: %s, want 410", cache, path, accept, got)
				}
			}
		}
		events := widgets.watch(t, "v1", metav1.ListOptions{ResourceVersion: made.GetResourceVersion()})
		widgets.create(t, "v1", "two", "spec: {}")
		if got := describe(nextEvent(t, events)); got != "ADDED two" {
			t.Errorf("%s, a watch from the latest version: %s", cache, got)
		}
	}
}

func TestInformer(t *testing.T) {
	t.Parallel()
	widgets := sharedAnnex(t).installCRD(t, newCRD(t, anySchema))
	widgets.create(t, "v1", "a", "spec: {}")
	informer := widgets.startInformer(t)
	widgets.create(t, "v1", "b", "spec: {}")
	widgets.delete(t, "a")
	informer.waitForNames(t, "b")
}

// A page of a compacted revision is gone. The error has a token for an inconsistent
// continuation.
func TestPagingAfterCompaction(t *testing.T) {
	t.Parallel()
	widgets := startAnnex(t).installCRD(t, newCRD(t, anySchema))
	for i := range 4 {
		widgets.create(t, "v1", fmt.Sprintf("widget-%d", i), "spec: {}")
	}
	first, err := widgets.in("v1").List(t.Context(), metav1.ListOptions{Limit: 2})
	expect.NoError(t, err)
	last := widgets.create(t, "v1", "widget-9", "spec: {}")
	annexEtcd := widgets.annex.etcd(t)
	current, err := annexEtcd.Get(t.Context(), "/")
	expect.NoError(t, err)
	if _, err := annexEtcd.Compact(t.Context(), current.Header.Revision); err != nil {
		t.Fatal(err)
	}
	// The watch cache still has the revision; a new process does not.
	widgets.annex = widgets.annex.restart(t)

	_, err = widgets.in("v1").List(t.Context(), metav1.ListOptions{Limit: 2, Continue: first.GetContinue()})
	var status apierrors.APIStatus
	if !apierrors.IsResourceExpired(err) || !errors.As(err, &status) || status.Status().Continue == "" {
		t.Fatalf("got %v, want that the resource version is gone, with a token to continue", err)
	}
	rest, err := widgets.in("v1").List(t.Context(), metav1.ListOptions{Continue: status.Status().Continue})
	expect.NoError(t, err)
	if n := len(rest.Items); n != 3 || rest.Items[n-1].GetUID() != last.GetUID() {
		t.Errorf("the rest of the list has %d items: %v", n, rest.Items)
	}
}

// TestReflectors syncs reflectors by WatchList, without a plain list, for CRDs and
// compiled-in kinds, with and without objects, also while watch caches fill after a start.
func TestReflectors(t *testing.T) {
	t.Parallel()
	a := startAnnex(t)
	widgets := a.installCRD(t, newCRD(t, anySchema))
	empty := a.installCRD(t, newCRD(t, anySchema))
	empty.waitForHostedResource(t, "is hosted", isHosted) // one of the objects below
	const objects = 300
	for i := range objects {
		widgets.create(t, "v1", fmt.Sprintf("widget-%d", i), "spec: {}")
	}
	for _, moment := range []string{"at once", "after a start"} {
		t.Log(moment)
		clients.CheckReflectors(t, a.AnnexConfig,
			clients.ListedResource{GroupVersionResource: widgets.gvr("v1"), Objects: objects, Namespaces: []string{metav1.NamespaceAll, widgets.namespace}},
			clients.ListedResource{GroupVersionResource: empty.gvr("v1"), Namespaces: []string{metav1.NamespaceAll, empty.namespace}},
			clients.ListedResource{GroupVersionResource: hostingv1alpha1.SchemeGroupVersion.WithResource("stores"), Objects: 1, Namespaces: []string{metav1.NamespaceAll}},
			clients.ListedResource{GroupVersionResource: hostingv1alpha1.SchemeGroupVersion.WithResource("hostedresources"), Objects: 2, Namespaces: []string{metav1.NamespaceAll}},
			clients.ListedResource{GroupVersionResource: corev1.SchemeGroupVersion.WithResource("resourcequotas"), Namespaces: []string{metav1.NamespaceAll, empty.namespace}},
		)
		if moment == "at once" {
			a = a.restart(t)
		}
	}
}
