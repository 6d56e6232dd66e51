// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	restclient "k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/annex-dev/annex/pkg/test/expect"
	"github.com/annex-dev/annex/pkg/test/poll"
	"github.com/annex-dev/annex/pkg/test/testserver"
)

// listCounter counts plain lists: reflectors fall back to one if the WatchList is refused or
// sends no bookmark.
type listCounter struct {
	http.RoundTripper
	lists atomic.Int64
}

// RoundTrip implements http.RoundTripper.
func (c *listCounter) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method == http.MethodGet && !r.URL.Query().Has("watch") {
		c.lists.Add(1)
	}
	return c.RoundTripper.RoundTrip(r)
}

// reflectors returns informers of a resource in namespaces, of objects and of metadata.
func reflectors(t *testing.T, server *testserver.Server, resource schema.GroupVersionResource, namespaces ...string) (map[string]cache.SharedIndexInformer, *listCounter) {
	t.Helper()
	counter := &listCounter{}
	config := restclient.CopyConfig(server.AnnexConfig)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		counter.RoundTripper = next
		return counter
	})
	annexHTTP, err := restclient.HTTPClientFor(config)
	expect.NoError(t, err)
	annexDynamic, err := dynamic.NewForConfigAndClient(config, annexHTTP)
	expect.NoError(t, err)
	annexMetadata, err := metadata.NewForConfigAndClient(config, annexHTTP)
	expect.NoError(t, err)
	made := map[string]cache.SharedIndexInformer{}
	for _, namespace := range namespaces {
		name := fmt.Sprintf("%s in %q", resource.Resource, namespace)
		made["objects of "+name] = dynamicinformer.NewFilteredDynamicInformer(annexDynamic, resource, namespace, 0, cache.Indexers{}, nil).Informer()
		made["metadata of "+name] = metadatainformer.NewFilteredMetadataInformer(annexMetadata, resource, namespace, 0, cache.Indexers{}, nil).Informer()
	}
	return made, counter
}

// wantSynced runs all informers at once, and checks their objects.
func wantSynced(t *testing.T, informers map[string]cache.SharedIndexInformer, want map[string]int) {
	t.Helper()
	for _, informer := range informers {
		go informer.RunWithContext(t.Context())
	}
	for name, informer := range informers {
		poll.UntilDone(t, name+" are synced", func() (bool, string) {
			return informer.HasSynced(), "not synced"
		})
		if got := len(informer.GetStore().ListKeys()); got != want[name] {
			t.Errorf("%s: %d objects, want %d", name, got, want[name])
		}
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
		all := []struct {
			resource schema.GroupVersionResource
			want     int
			spaces   []string
		}{
			{widgets.gvr("v1"), objects, []string{metav1.NamespaceAll, widgets.namespace}},
			{empty.gvr("v1"), 0, []string{metav1.NamespaceAll, empty.namespace}},
			{schema.GroupVersionResource{Group: "hosting.annex.dev", Version: "v1alpha1", Resource: "stores"}, 1, []string{metav1.NamespaceAll}},
			{schema.GroupVersionResource{Group: "hosting.annex.dev", Version: "v1alpha1", Resource: "hostedresources"}, 2, []string{metav1.NamespaceAll}},
			{schema.GroupVersionResource{Version: "v1", Resource: "resourcequotas"}, 0, []string{metav1.NamespaceAll, empty.namespace}},
		}
		informers, want := map[string]cache.SharedIndexInformer{}, map[string]int{}
		var counters []*listCounter
		for _, one := range all {
			made, counter := reflectors(t, a.Server, one.resource, one.spaces...)
			counters = append(counters, counter)
			for name, informer := range made {
				informers[name], want[name] = informer, one.want
			}
		}
		wantSynced(t, informers, want)
		for i, counter := range counters {
			if lists := counter.lists.Load(); lists > 0 {
				t.Errorf("%s: %d plain lists of %s", moment, lists, all[i].resource.Resource)
			}
		}
		if moment == "at once" {
			a = a.restart(t)
		}
	}
}
