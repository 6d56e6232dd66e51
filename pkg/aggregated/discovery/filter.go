// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package discovery filters OpenAPI and discovery documents for the aggregator of the
// main cluster.
package discovery

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	apiextensionshelpers "k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	crdinformers "k8s.io/apiextensions-apiserver/pkg/client/informers/externalversions/apiextensions/v1"
	crdlisters "k8s.io/apiextensions-apiserver/pkg/client/listers/apiextensions/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/util/responsewriter"
	"k8s.io/klog/v2"
	"k8s.io/kube-openapi/pkg/handler3"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
)

// User names that kube-apiserver uses to fetch OpenAPI and discovery.
const (
	aggregatorUser = "system:aggregator"
	discoveryUser  = "system:kube-aggregator"
)

const (
	openAPIV2Path = "/openapi/v2"
	openAPIV3Path = "/openapi/v3"
)

const (
	// settlingPeriod is the time after its establishment in which a definition may be missing in
	// annex's documents without being broken; startPeriod is the same for all
	// definitions after annex was started.
	settlingPeriod = 10 * time.Second
	startPeriod    = 30 * time.Second
	// settlingTimeout bounds how long the aggregator waits for such a definition: it
	// fetches from one server after the other.
	settlingTimeout = 2 * time.Second
	// settlingInterval is the time between two checks of the documents meanwhile.
	settlingInterval = 50 * time.Millisecond
	// retryAfterSeconds is sent to an aggregator whose request came too early.
	retryAfterSeconds = "1"
)

// MainAPIs are the APIs that the main cluster serves itself.
type MainAPIs interface {
	// HasSynced reports whether they are known.
	HasSynced() bool
	// Defines returns the resources of a version that definitions of the main
	// cluster serve, by their plural names.
	Defines(version schema.GroupVersion) sets.Set[string]
	// PublishedElsewhere reports whether the main cluster sends requests for a
	// version to a server other than annex, itself included.
	PublishedElsewhere(version schema.GroupVersion) bool
}

// Filter returns a wrapper of annex's aggregator that filters the documents which the
// main cluster's aggregator fetches. They contain only what annex alone serves, because
// that aggregator expects nothing else: it takes all paths that the index of v3 lists,
// and serves either document of a path that two servers list; a path of v2 that starts
// like one of a definition of its own breaks v2 for the whole cluster; and schemas that
// differ from its own in a single word are added again under another name.
//
// Other users get the documents whole.
func Filter(main MainAPIs) func(http.Handler, crdinformers.CustomResourceDefinitionInformer) http.Handler {
	return func(next http.Handler, definitions crdinformers.CustomResourceDefinitionInformer) http.Handler {
		return newFilter(next, definitions, main)
	}
}

type filter struct {
	next        http.Handler
	definitions crdlisters.CustomResourceDefinitionLister
	// synced reports whether all definitions are known.
	synced  func() bool
	main    MainAPIs
	started time.Time
	v2      filteredV2
}

func newFilter(next http.Handler, definitions crdinformers.CustomResourceDefinitionInformer, main MainAPIs) *filter {
	return &filter{
		next:        next,
		definitions: definitions.Lister(),
		synced:      definitions.Informer().HasSynced,
		main:        main,
		started:     time.Now(),
	}
}

// ServeHTTP serves the aggregator, and passes on all other requests.
func (a *filter) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch path := r.URL.Path; {
	case strings.HasPrefix(path, openAPIV3Path+"/"):
		withoutRedirect(a.next, w, r)
	case path == openAPIV2Path && isUser(r, aggregatorUser):
		a.serveOpenAPI(w, r, a.collectV2)
	case path == openAPIV3Path && isUser(r, aggregatorUser):
		a.serveOpenAPI(w, r, a.collectV3)
	case path == discoveryPath && isUser(r, discoveryUser):
		a.serveDiscovery(w, r)
	default:
		a.next.ServeHTTP(w, r)
	}
}

func isUser(r *http.Request, name string) bool {
	user, ok := request.UserFrom(r.Context())
	return ok && user.GetName() == name
}

type collect func(*http.Request, *view) (*document, *failure)

func (a *filter) serveOpenAPI(w http.ResponseWriter, r *http.Request, collect collect) {
	if !a.main.HasSynced() || !a.synced() {
		tooEarly("the APIs of annex and the main cluster are not known yet").writeTo(w)
		return
	}
	document, failure := a.settled(r, collect)
	if failure != nil {
		failure.writeTo(w)
		return
	}
	document.serve(w, r)
}

type document struct {
	content []byte
	etag    string
	// has reports whether a version is in it.
	has func(schema.GroupVersion) bool
}

func newDocument(content []byte, has func(schema.GroupVersion) bool) *document {
	return &document{content: content, etag: fmt.Sprintf(`"%X"`, sha256.Sum256(content)), has: has}
}

// serve returns 304 for an unchanged document.
func (d *document) serve(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Etag", d.etag)
	http.ServeContent(w, r, r.URL.Path, time.Time{}, bytes.NewReader(d.content))
}

type failure struct {
	code   int
	header http.Header
	body   []byte
}

func (f *failure) writeTo(w http.ResponseWriter) {
	for name, values := range f.header {
		w.Header()[name] = values
	}
	w.WriteHeader(f.code)
	// It fails only if the aggregator disconnected.
	_, _ = w.Write(f.body)
}

// tooEarly makes the aggregator keep its documents and retry.
func tooEarly(reason string) *failure {
	return &failure{code: http.StatusServiceUnavailable, header: http.Header{"Retry-After": {retryAfterSeconds}}, body: []byte(reason)}
}

func internalFailure(ctx context.Context, err error) *failure {
	klog.FromContext(ctx).Error(err, "Filter a document for the main cluster")
	return &failure{code: http.StatusInternalServerError, body: []byte(err.Error())}
}

// settled collects a document until it contains all new definitions. A version is
// published within milliseconds and its documents are built slightly later: an
// aggregator that got none would fetch again only after a minute.
func (a *filter) settled(r *http.Request, collect collect) (found *document, failed *failure) {
	isComplete := func() bool {
		seen := a.compare()
		found, failed = collect(r, seen)
		return failed != nil || !seen.missesNew(found)
	}
	if !within(r.Context(), settlingTimeout, isComplete) {
		return nil, tooEarly("the documents of new definitions are not complete yet")
	}
	return found, failed
}

// within calls holds until it returns true, and reports whether it did so in time.
func within(ctx context.Context, timeout time.Duration, holds func() bool) bool {
	err := wait.PollUntilContextTimeout(ctx, settlingInterval, timeout, true, func(context.Context) (bool, error) { return holds(), nil })
	return err == nil
}

// view has the resources that annex serves and the main cluster does not, at one moment.
type view struct {
	// versions are those in the filtered documents; for each, the resources that the
	// main cluster defines itself.
	versions map[schema.GroupVersion]sets.Set[string]
	// fresh are the versions of definitions whose documents may be incomplete.
	fresh []schema.GroupVersion
}

func (a *filter) compare() *view {
	v := &view{versions: map[schema.GroupVersion]sets.Set[string]{hostingv1alpha1.SchemeGroupVersion: nil}}
	for _, definition := range a.all() {
		fresh := a.maySettle(definition)
		for _, served := range definition.Spec.Versions {
			version := schema.GroupVersion{Group: definition.Spec.Group, Version: served.Name}
			if !served.Served || a.main.PublishedElsewhere(version) {
				continue
			}
			defined := a.main.Defines(version)
			v.versions[version] = defined
			if fresh && !defined.Has(definition.Spec.Names.Plural) {
				v.fresh = append(v.fresh, version)
			}
		}
	}
	return v
}

// all returns annex's definitions. A lister reads memory and cannot fail.
func (a *filter) all() []*apiextensionsv1.CustomResourceDefinition {
	all, _ := a.definitions.List(labels.Everything())
	return all
}

// maySettle reports whether the documents of a definition may be incomplete.
func (a *filter) maySettle(definition *apiextensionsv1.CustomResourceDefinition) bool {
	established := apiextensionshelpers.FindCRDCondition(definition, apiextensionsv1.Established)
	return established != nil && established.Status == apiextensionsv1.ConditionTrue &&
		(a.starting() || time.Since(established.LastTransitionTime.Time) < settlingPeriod)
}

// starting reports whether annex started less than startPeriod ago.
func (a *filter) starting() bool { return time.Since(a.started) < startPeriod }

// ownWholly reports whether the main cluster defines nothing in a version.
func (v *view) ownWholly(version schema.GroupVersion) bool {
	defined, served := v.versions[version]
	return served && defined.Len() == 0
}

// missesNew reports whether a new version is missing.
func (v *view) missesNew(found *document) bool {
	for _, version := range v.fresh {
		if !found.has(version) {
			return true
		}
	}
	return false
}

// collectV3 filters the index of v3. A version in which the main cluster defines a
// resource has a document there; with a second one in the index the aggregator would
// serve either.
func (a *filter) collectV3(r *http.Request, seen *view) (*document, *failure) {
	inner, failed := a.fetch(r, runtime.ContentTypeJSON, "")
	if failed != nil {
		return nil, failed
	}
	var index handler3.OpenAPIV3Discovery
	if err := json.Unmarshal(inner.content, &index); err != nil {
		return nil, internalFailure(r.Context(), fmt.Errorf("read the index of OpenAPI v3: %w", err))
	}
	kept := handler3.OpenAPIV3Discovery{Paths: map[string]handler3.OpenAPIV3DiscoveryGroupVersion{}}
	for version := range seen.versions {
		path := v3Path(version)
		if entry, ok := index.Paths[path]; ok && seen.ownWholly(version) {
			kept.Paths[path] = entry
		}
	}
	content, err := json.Marshal(kept)
	if err != nil {
		return nil, internalFailure(r.Context(), fmt.Errorf("write the index of OpenAPI v3: %w", err))
	}
	return newDocument(content, func(version schema.GroupVersion) bool {
		_, listed := kept.Paths[v3Path(version)]
		// A version that is left out will not appear.
		return listed || !seen.ownWholly(version)
	}), nil
}

func v3Path(version schema.GroupVersion) string {
	return "apis/" + version.Group + "/" + version.Version
}

// unfiltered is a document as annex serves it.
type unfiltered struct {
	content []byte
	etag    string
	// unchanged reports that the ETag of the request matched; content is empty then.
	unchanged bool
}

// fetch reads a document from annex itself. With an ETag it is read only if it
// changed.
func (a *filter) fetch(r *http.Request, accept, etag string) (*unfiltered, *failure) {
	inner := r.Clone(r.Context())
	inner.Header = http.Header{"Accept": {accept}}
	if etag != "" {
		inner.Header.Set("If-None-Match", etag)
	}
	writer := responsewriter.NewInMemoryResponseWriter()
	a.next.ServeHTTP(writer, inner)
	switch writer.RespCode() {
	case http.StatusOK:
		return &unfiltered{content: writer.Data(), etag: writer.Header().Get("Etag")}, nil
	case http.StatusNotModified:
		return &unfiltered{etag: etag, unchanged: true}, nil
	}
	return nil, &failure{code: writer.RespCode(), header: writer.Header(), body: writer.Data()}
}
