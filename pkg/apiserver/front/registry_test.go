// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package front

import (
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/annex-dev/annex/pkg/storage/watchcache"
)

func newDefinition() *apiextensionsv1.CustomResourceDefinition {
	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "widgets.example.com", UID: "1", ResourceVersion: "1"},
		Spec:       apiextensionsv1.CustomResourceDefinitionSpec{Group: "example.com"},
	}
}

func newTestEndpoint() watchcache.Endpoint {
	return watchcache.Endpoint{Definition: newDefinition(), Resource: &watchcache.Resource{Kind: schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Widget"}}}
}

func newTestRegistry() *Registry[string] {
	return NewRegistry(func(from watchcache.Endpoint) string { return from.Definition.Name })
}

func TestFind(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change  func(*apiextensionsv1.CustomResourceDefinition)
		version string
		found   bool
	}{
		"the same":                {func(*apiextensionsv1.CustomResourceDefinition) {}, "v1", true},
		"another version":         {func(*apiextensionsv1.CustomResourceDefinition) {}, "v2", false},
		"other conditions":        {func(d *apiextensionsv1.CustomResourceDefinition) { d.Status.StoredVersions = []string{"v1"} }, "v1", true},
		"another resourceVersion": {func(d *apiextensionsv1.CustomResourceDefinition) { d.ResourceVersion = "2" }, "v1", true},
		"created again":           {func(d *apiextensionsv1.CustomResourceDefinition) { d.UID = "2" }, "v1", false},
		"another spec":            {func(d *apiextensionsv1.CustomResourceDefinition) { d.Generation++ }, "v1", false},
		"other names":             {func(d *apiextensionsv1.CustomResourceDefinition) { d.Status.AcceptedNames.Plural = "x" }, "v1", false},
	} {
		r := newTestRegistry()
		remove := r.Add(newTestEndpoint())
		now := newDefinition()
		test.change(now)
		for range 2 { // the second result is remembered
			if found := r.Find(now, test.version) != nil; found != test.found {
				t.Errorf("%s: found %v, want %v", name, found, test.found)
			}
		}
		remove()
		if r.Find(newDefinition(), "v1") != nil {
			t.Errorf("%s: found after it was removed", name)
		}
	}
}

// TestRemove adds the storage of a new definition before it removes the old storage, as upstream
// does. A request still uses the old storage.
func TestRemove(t *testing.T) {
	t.Parallel()
	r := newTestRegistry()
	removeOld := r.Add(newTestEndpoint())
	old := r.Find(newDefinition(), "v1")
	if err := old.requests.Add(1); err != nil {
		t.Fatal(err)
	}
	r.Add(newTestEndpoint())
	removed := make(chan struct{})
	go func() {
		removeOld()
		close(removed)
	}()
	if found := r.Find(newDefinition(), "v1"); found == nil || found == old {
		t.Error("the new storage is not found")
	}
	select {
	case <-removed:
		t.Error("the storage was removed during a request")
	case <-time.After(10 * time.Millisecond):
	}
	old.requests.Done()
	<-removed
	if r.Find(newDefinition(), "v1") == nil {
		t.Error("the new storage was removed")
	}
}
