// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	crdlisters "k8s.io/apiextensions-apiserver/pkg/client/listers/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/tools/cache"
	"k8s.io/kube-openapi/pkg/handler3"

	"github.com/annex-dev/annex/pkg/test/expect"
)

// knownMain is a main cluster with fixed APIs.
type knownMain struct {
	unknown   bool
	defines   map[schema.GroupVersion]sets.Set[string]
	elsewhere sets.Set[schema.GroupVersion]
}

func (m *knownMain) Run(context.Context)                                  {}
func (m *knownMain) HasSynced() bool                                      { return !m.unknown }
func (m *knownMain) Defines(version schema.GroupVersion) sets.Set[string] { return m.defines[version] }
func (m *knownMain) PublishedElsewhere(version schema.GroupVersion) bool {
	return m.elsewhere.Has(version)
}

func v1Of(group string) schema.GroupVersion {
	return schema.GroupVersion{Group: group, Version: "v1"}
}

// newDefinition is one that was established some time ago.
func newDefinition(plural, group string, age time.Duration) *apiextensionsv1.CustomResourceDefinition {
	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: plural + "." + group},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group:    group,
			Names:    apiextensionsv1.CustomResourceDefinitionNames{Plural: plural},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{Name: "v1", Served: true}, {Name: "v2"}},
		},
		Status: apiextensionsv1.CustomResourceDefinitionStatus{Conditions: []apiextensionsv1.CustomResourceDefinitionCondition{
			{Type: apiextensionsv1.Established, Status: apiextensionsv1.ConditionTrue, LastTransitionTime: metav1.NewTime(time.Now().Add(-age))},
		}},
	}
}

// documents serves documents as annex does, and counts how often each was sent.
type documents struct {
	v2, v3 atomic.Pointer[[]byte]
	sentV2 atomic.Int64
}

func (d *documents) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var content []byte
	switch {
	case r.URL.Path == openAPIV2Path:
		content = *d.v2.Load()
	case r.URL.Path == openAPIV3Path:
		content = *d.v3.Load()
	case strings.HasPrefix(r.URL.Path, openAPIV3Path+"/") && r.URL.Query().Get("hash") == "old":
		http.Redirect(w, r, r.URL.Path+"?hash=new", http.StatusMovedPermanently)
		return
	default:
		content = []byte(r.URL.String())
	}
	w.Header().Set("Etag", fmt.Sprintf(`"%x"`, content))
	counter := &countingWriter{ResponseWriter: w}
	http.ServeContent(counter, r, "", time.Time{}, bytes.NewReader(content))
	if r.URL.Path == openAPIV2Path && counter.written > 0 {
		d.sentV2.Add(1)
	}
}

type countingWriter struct {
	http.ResponseWriter
	written int
}

func (c *countingWriter) Write(content []byte) (int, error) {
	c.written += len(content)
	return c.ResponseWriter.Write(content)
}

func newDocuments(t *testing.T, v2 swagger, v3 ...string) *documents {
	t.Helper()
	d := &documents{}
	d.setV3(t, v3...)
	content, err := json.Marshal(v2)
	expect.NoError(t, err)
	d.v2.Store(&content)
	return d
}

func (d *documents) setV3(t *testing.T, paths ...string) {
	t.Helper()
	index := handler3.OpenAPIV3Discovery{Paths: map[string]handler3.OpenAPIV3DiscoveryGroupVersion{}}
	for _, path := range paths {
		index.Paths[path] = handler3.OpenAPIV3DiscoveryGroupVersion{ServerRelativeURL: "/openapi/v3/" + path + "?hash=1"}
	}
	content, err := json.Marshal(index)
	expect.NoError(t, err)
	d.v3.Store(&content)
}

func newHandler(next http.Handler, main MainAPIs, definitions ...*apiextensionsv1.CustomResourceDefinition) *filter {
	indexer := cache.NewIndexer(cache.MetaNamespaceKeyFunc, nil)
	for _, definition := range definitions {
		// Adding to memory does not fail.
		_ = indexer.Add(definition)
	}
	return &filter{
		next:        next,
		definitions: crdlisters.NewCustomResourceDefinitionLister(indexer),
		synced:      func() bool { return true },
		main:        main,
		started:     time.Now().Add(-time.Hour),
	}
}

// get sends a GET request as the user. headers are pairs of names and values.
func get(handler http.Handler, username, path string, headers ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodGet, path, nil)
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	r = r.WithContext(request.WithUser(r.Context(), &user.DefaultInfo{Name: username}))
	recorder := httptest.NewRecorder()
	handler.ServeHTTP(recorder, r)
	return recorder
}

func listedPaths(t *testing.T, answer *httptest.ResponseRecorder) []string {
	t.Helper()
	var index struct{ Paths map[string]any }
	expect.NoError(t, json.Unmarshal(answer.Body.Bytes(), &index), "%d %s", answer.Code, answer.Body)
	return slices.Sorted(maps.Keys(index.Paths))
}

func TestAggregatorGetsTheIndexOfWhatOnlyAnnexHas(t *testing.T) {
	t.Parallel()
	all := []string{
		"version", ".well-known/openid-configuration", "apis", "apis/apiextensions.k8s.io", "apis/apiextensions.k8s.io/v1", "apis/apiregistration.k8s.io/v1",
		"apis/hosting.annex.dev", "apis/hosting.annex.dev/v1alpha1", "apis/own.example.com/v1", "apis/followed.example.com/v1", "apis/foreign.example.com/v1",
		"apis/gone.example.com/v1", "apis/mixed.example.com/v1",
	}
	main := &knownMain{
		defines: map[schema.GroupVersion]sets.Set[string]{
			v1Of("followed.example.com"): sets.New("widgets"),
			// One of two resources: the document of the main cluster lacks the
			// other, but that is better than a toss.
			v1Of("mixed.example.com"): sets.New("widgets"),
		},
		elsewhere: sets.New(v1Of("foreign.example.com")),
	}
	handler := newHandler(newDocuments(t, swagger{}, all...), main,
		newDefinition("widgets", "own.example.com", time.Hour), newDefinition("widgets", "followed.example.com", time.Hour),
		newDefinition("widgets", "foreign.example.com", time.Hour), newDefinition("widgets", "mixed.example.com", time.Hour),
		newDefinition("gadgets", "mixed.example.com", time.Hour), newDefinition("widgets", "undocumented.example.com", time.Hour))

	answer := get(handler, aggregatorUser, openAPIV3Path)
	expect.Equal(t, []string{"apis/hosting.annex.dev/v1alpha1", "apis/own.example.com/v1"}, listedPaths(t, answer), "paths for the aggregator")
	if !strings.Contains(answer.Body.String(), `"serverRelativeURL":"/openapi/v3/apis/own.example.com/v1?hash=1"`) {
		t.Errorf("the links changed: %s", answer.Body)
	}
	if again := get(handler, aggregatorUser, openAPIV3Path, "If-None-Match", answer.Header().Get("Etag")); again.Code != http.StatusNotModified {
		t.Errorf("asked for changes of what did not change: %d", again.Code)
	}
	slices.Sort(all)
	expect.Equal(t, all, listedPaths(t, get(handler, "admin", openAPIV3Path)), "paths for others")
}

func TestAggregatorThatComesTooEarly(t *testing.T) {
	t.Parallel()
	unknown := newHandler(newDocuments(t, swagger{}), &knownMain{unknown: true})
	starting := newHandler(newDocuments(t, swagger{}), &knownMain{})
	starting.synced = func() bool { return false }
	for name, handler := range map[string]http.Handler{"the main cluster is not known": unknown, "annex's definitions are not known": starting} {
		for _, path := range []string{openAPIV2Path, openAPIV3Path} {
			if answer := get(handler, aggregatorUser, path); answer.Code != http.StatusServiceUnavailable || answer.Header().Get("Retry-After") == "" {
				t.Errorf("%s: %s: got %d, want 503 and when to try again", name, path, answer.Code)
			}
			if answer := get(handler, "admin", path); answer.Code != http.StatusOK {
				t.Errorf("%s: %s: others got %d", name, path, answer.Code)
			}
		}
	}
	failing := newHandler(http.NotFoundHandler(), &knownMain{})
	if answer := get(failing, aggregatorUser, openAPIV2Path); answer.Code != http.StatusNotFound {
		t.Errorf("an answer that is no document: got %d, want it handed on", answer.Code)
	}
}

// What was defined just now is waited for: the aggregator looks again only after
// a minute.
func TestAggregatorWaitsForWhatIsDefinedJustNow(t *testing.T) {
	t.Parallel()
	served := newDocuments(t, swagger{}, "apis/hosting.annex.dev/v1alpha1")
	handler := newHandler(served, &knownMain{}, newDefinition("widgets", "fresh.example.com", 0))
	appears := time.AfterFunc(3*settlingInterval, func() { served.setV3(t, "apis/fresh.example.com/v1") })
	defer appears.Stop()
	answer := get(handler, aggregatorUser, openAPIV3Path)
	expect.Equal(t, []string{"apis/fresh.example.com/v1"}, listedPaths(t, answer), "paths")
	never := newHandler(newDocuments(t, swagger{}), &knownMain{}, newDefinition("widgets", "fresh.example.com", 0))
	if answer := get(never, aggregatorUser, openAPIV3Path); answer.Code != http.StatusServiceUnavailable {
		t.Errorf("still without the document: got %d, want 503", answer.Code)
	}
	restarted := newHandler(newDocuments(t, swagger{}), &knownMain{}, newDefinition("widgets", "old.example.com", time.Hour))
	restarted.started = time.Now()
	if answer := get(restarted, aggregatorUser, openAPIV3Path); answer.Code != http.StatusServiceUnavailable {
		t.Errorf("just started and without a document: got %d, want 503", answer.Code)
	}
}

func TestNoRedirections(t *testing.T) {
	t.Parallel()
	handler := newHandler(newDocuments(t, swagger{}), &knownMain{})
	for path, want := range map[string]string{
		"/openapi/v3/apis/example.com/v1?hash=old":             "/openapi/v3/apis/example.com/v1",
		"/openapi/v3/apis/example.com/v1?hash=old&timeout=32s": "/openapi/v3/apis/example.com/v1?timeout=32s",
		"/openapi/v3/apis/example.com/v1?hash=current":         "/openapi/v3/apis/example.com/v1?hash=current",
		"/openapi/v3/apis/example.com/v1":                      "/openapi/v3/apis/example.com/v1",
	} {
		answer := get(handler, "alice", path)
		if answer.Code != http.StatusOK || answer.Body.String() != want || answer.Header().Get("Location") != "" {
			t.Errorf("%s: %d %s, Location %q; want 200 %s", path, answer.Code, answer.Body, answer.Header().Get("Location"), want)
		}
	}
}
