// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	crdlisters "k8s.io/apiextensions-apiserver/pkg/client/listers/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/tools/cache"

	"github.com/annex-dev/annex/pkg/test/crds"
	"github.com/annex-dev/annex/pkg/test/expect"
)

func TestIdleResources(t *testing.T) {
	t.Parallel()
	indexer := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	crd := crds.New("example.com", "widgets", "v1")
	expect.NoError(t, indexer.Add(crd))
	now, empty, released := time.Now(), true, 0
	i := &idleResources{
		definitions: crdlisters.NewCustomResourceDefinitionLister(indexer),
		isEmpty:     func(schema.GroupResource) bool { return empty },
		now:         func() time.Time { return now },
		used:        map[string]*use{},
		changed: cache.ResourceEventHandlerFuncs{UpdateFunc: func(_, updated any) {
			released++
			if after := updated.(*apiextensionsv1.CustomResourceDefinition); after.UID != crd.UID || len(after.Spec.Versions) > 0 {
				t.Errorf("the definition is changed to %+v", after)
			}
		}},
	}
	during := func() {}
	handler := i.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { during() }))
	send := func(resource string) {
		ctx := request.WithRequestInfo(t.Context(), &request.RequestInfo{IsResourceRequest: true, APIGroup: "example.com", Resource: resource})
		handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil))
	}
	expectReleased := func(want int, when string) {
		t.Helper()
		i.release()
		expect.Equal(t, want, released, when)
	}
	expectReleased(0, "never used")
	send("widgets")
	now = now.Add(idleAfter - 1)
	expectReleased(0, "just used")
	during = func() {
		now = now.Add(time.Hour)
		expectReleased(0, "a watch is open")
	}
	send("widgets")
	expectReleased(0, "a watch has just ended")
	empty = false
	now = now.Add(idleAfter)
	expectReleased(0, "it has objects")
	empty = true
	expectReleased(1, "idle")
	expectReleased(1, "released before")
	during = func() {}
	send("widgets")
	crd.DeletionTimestamp = &metav1.Time{Time: now}
	now = now.Add(idleAfter)
	expectReleased(1, "being deleted")
	expect.NoError(t, indexer.Delete(crd))
	expectReleased(1, "deleted")
	send("gadgets")
	expect.Equal(t, 0, len(i.used), "without a definition")
}
