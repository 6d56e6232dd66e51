// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package writes

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/annex-dev/annex/pkg/storage/watchcache"
	"github.com/annex-dev/annex/pkg/test/expect"
)

// widget returns a stored object with a text of a size.
func widget(t *testing.T, version string, size int) *watchcache.Object {
	t.Helper()
	resource := &watchcache.Resource{
		Kind:  schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Widget"},
		Attrs: func(runtime.Object) (labels.Set, fields.Set, error) { return nil, nil, nil },
	}
	stored := fmt.Appendf(nil, `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"w"},"text":%q}`, strings.Repeat("x", size))
	object := &watchcache.Object{}
	expect.NoError(t, runtime.DecodeInto(resource.Form(unstructured.UnstructuredJSONScheme).Codec, stored, object))
	object.SetResourceVersion(version)
	return object
}

func TestRecents(t *testing.T) {
	t.Parallel()
	shared := newSharedRecents()
	r, other := shared.ofEndpoint(), shared.ofEndpoint()
	newer := func(r recents, key string, than *watchcache.Object) string {
		if found := r.newer(key, than); found != nil {
			return found.GetResourceVersion()
		}
		return ""
	}
	expect.Equal(t, "", newer(r, "a", nil), "nothing was written")
	r.add("a", widget(t, "9", 1))
	r.add("a", widget(t, "10", 1))
	expect.Equal(t, "10", newer(r, "a", nil), "the watch cache has none")
	expect.Equal(t, "10", newer(r, "a", widget(t, "9", 1)), "the watch cache has an older one")
	expect.Equal(t, "", newer(r, "a", widget(t, "10", 1)), "the watch cache has the same one")
	expect.Equal(t, "", newer(r, "a", widget(t, "11", 1)), "the watch cache has a newer one")
	expect.Equal(t, "", newer(r, "b", nil), "another object")
	expect.Equal(t, "", newer(other, "a", nil), "another endpoint")
	r.remove("a")
	expect.Equal(t, "", newer(r, "a", nil), "removed")

	r.add("a", widget(t, "12", 1))
	r.add("a", widget(t, "13", maxRecentBytes))
	expect.Equal(t, "", newer(r, "a", nil), "replaced by one that is too large")
	for i := range maxRecents + 10 {
		r.add(fmt.Sprint(i), widget(t, "1", 1))
	}
	expect.Equal(t, maxRecents, r.objects.Len(), "objects")
}
