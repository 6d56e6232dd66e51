// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package reflectors checks that client-go's reflectors sync by WatchList.
package reflectors

import (
	"fmt"
	"net/http"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/metadata/metadatainformer"
	restclient "k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/annex-dev/annex/pkg/test/clients"
	"github.com/annex-dev/annex/pkg/test/poll"
)

// Resource has a number of objects in each of the namespaces.
type Resource struct {
	schema.GroupVersionResource

	Objects    int
	Namespaces []string
}

// listRecorder records plain lists: reflectors fall back to one if the WatchList is refused
// or sends no bookmark.
type listRecorder struct {
	http.RoundTripper

	mu    sync.Mutex
	lists []string
}

// RoundTrip implements http.RoundTripper.
func (l *listRecorder) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method == http.MethodGet && !r.URL.Query().Has("watch") {
		l.mu.Lock()
		l.lists = append(l.lists, r.URL.String())
		l.mu.Unlock()
	}
	return l.RoundTripper.RoundTrip(r)
}

// Check runs informers of objects and of metadata for all resources and namespaces at once.
// The test fails if one lacks objects, or sends a plain list.
func Check(t *testing.T, config *restclient.Config, resources ...Resource) {
	t.Helper()
	recorder := &listRecorder{}
	config = restclient.CopyConfig(config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		recorder.RoundTripper = next
		return recorder
	})
	c := clients.For(t, config)
	informers, want := map[string]cache.SharedIndexInformer{}, map[string]int{}
	for _, resource := range resources {
		for _, namespace := range resource.Namespaces {
			name := fmt.Sprintf("%s in %q", resource.GroupResource(), namespace)
			informers["objects of "+name] = dynamicinformer.NewFilteredDynamicInformer(c.Dynamic, resource.GroupVersionResource, namespace, 0, cache.Indexers{}, nil).Informer()
			informers["metadata of "+name] = metadatainformer.NewFilteredMetadataInformer(c.Metadata, resource.GroupVersionResource, namespace, 0, cache.Indexers{}, nil).Informer()
			want["objects of "+name], want["metadata of "+name] = resource.Objects, resource.Objects
		}
	}
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
	recorder.mu.Lock()
	defer recorder.mu.Unlock()
	for _, list := range recorder.lists {
		t.Errorf("a plain list was sent: %s", list)
	}
}
