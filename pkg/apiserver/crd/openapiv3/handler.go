// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package openapiv3

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	crdinformers "k8s.io/apiextensions-apiserver/pkg/client/informers/externalversions/apiextensions/v1"
	crdlisters "k8s.io/apiextensions-apiserver/pkg/client/listers/apiextensions/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apiserver/pkg/endpoints/handlers/negotiation"
	"k8s.io/apiserver/pkg/util/responsewriter"
	"k8s.io/client-go/tools/cache"
	"k8s.io/kube-openapi/pkg/handler3"
	"k8s.io/utils/lru"
)

// root is the path of the list of documents, and begins theirs.
const root = "/openapi/v3"

// keptDocuments is the number of documents that are kept. Clients ask for those of the groups
// that they use.
const keptDocuments = 16

const (
	mediaTypeJSON     = "application/json"
	subTypeProtobuf   = "com.github.proto-openapi.spec.v3.v1.0+protobuf"
	subTypeDeprecated = "com.github.proto-openapi.spec.v3@v1.0+protobuf"
)

// accepted has the formats that clients may ask for, as in upstream's handler3.
var accepted = []runtime.SerializerInfo{
	{MediaType: mediaTypeJSON, MediaTypeType: "application", MediaTypeSubType: "json"},
	{MediaType: "application/" + subTypeProtobuf, MediaTypeType: "application", MediaTypeSubType: subTypeProtobuf},
	{MediaType: "application/" + subTypeProtobuf, MediaTypeType: "application", MediaTypeSubType: subTypeDeprecated},
}

// handler serves the documents of custom resources, and those of next.
type handler struct {
	next        http.Handler
	definitions crdlisters.CustomResourceDefinitionLister
	withSchemas WithSchemasFunc

	mu sync.Mutex
	// current is nil after a change of a definition.
	current *index

	// building is full while a document is built: one at a time, to bound memory.
	building chan struct{}
	kept     *lru.Cache
}

// WithSchemasFunc returns a definition with the schemas that a lister omits.
type WithSchemasFunc func(*apiextensionsv1.CustomResourceDefinition) (*apiextensionsv1.CustomResourceDefinition, error)

// Handler serves the documents of custom resources. It passes on everything else to next, and
// adds the documents to its list of documents, which must not change.
func Handler(next http.Handler, definitions crdinformers.CustomResourceDefinitionInformer, withSchemas WithSchemasFunc) (http.Handler, error) {
	h := &handler{next: next, definitions: definitions.Lister(), withSchemas: withSchemas, building: make(chan struct{}, 1), kept: lru.New(keptDocuments)}
	changed := func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.current = nil
	}
	_, err := definitions.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { changed() },
		UpdateFunc: func(any, any) { changed() },
		DeleteFunc: func(any) { changed() },
	})
	if err != nil {
		return nil, fmt.Errorf("watch definitions: %w", err)
	}
	return h, nil
}

// ServeHTTP implements http.Handler.
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == root {
		h.serveList(w, r)
		return
	}
	path, isDocument := strings.CutPrefix(r.URL.Path, root+"/")
	if !isDocument {
		h.next.ServeHTTP(w, r)
		return
	}
	if g := h.getIndex().versions[path]; g != nil {
		h.serveDocument(w, r, g)
		return
	}
	h.next.ServeHTTP(w, r)
}

// getIndex returns the current index.
func (h *handler) getIndex() *index {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.current == nil {
		// A lister reads memory and cannot fail.
		all, _ := h.definitions.List(labels.Everything())
		h.current = newIndex(all)
	}
	return h.current
}

// serveList serves the list of documents. The aggregator reads it once a second.
func (h *handler) serveList(w http.ResponseWriter, r *http.Request) {
	current := h.getIndex()
	list := current.list.Load()
	if list == nil {
		merged, ok := h.nextList(w, r)
		if !ok {
			return
		}
		for path, g := range current.versions {
			merged.Paths[path] = handler3.OpenAPIV3DiscoveryGroupVersion{ServerRelativeURL: link(g)}
		}
		encoded, err := json.Marshal(merged)
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		list = &encoded
		current.list.Store(list)
	}
	w.Header().Set("Content-Type", mediaTypeJSON)
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(*list))
}

// nextList returns the list of next. An error of next is passed on.
func (h *handler) nextList(w http.ResponseWriter, r *http.Request) (list handler3.OpenAPIV3Discovery, ok bool) {
	response := responsewriter.NewInMemoryResponseWriter()
	plain := r.Clone(r.Context())
	plain.Header = http.Header{"Accept": {mediaTypeJSON}}
	h.next.ServeHTTP(response, plain)
	if response.RespCode() != http.StatusOK {
		w.WriteHeader(response.RespCode())
		_, _ = w.Write(response.Data())
		return list, false
	}
	if err := json.Unmarshal(response.Data(), &list); err != nil {
		http.Error(w, fmt.Sprintf("read the list of OpenAPI v3 documents: %v", err), http.StatusInternalServerError)
		return list, false
	}
	if list.Paths == nil {
		list.Paths = map[string]handler3.OpenAPIV3DiscoveryGroupVersion{}
	}
	return list, true
}

// link returns the URL of a document.
func link(g *groupVersion) string {
	return (&url.URL{Path: root + "/" + g.path, RawQuery: url.Values{"hash": {g.hash}}.Encode()}).String()
}

// serveDocument serves a document as upstream's handler3 does: clients may keep the document of
// a hash, and are redirected from outdated hashes.
func (h *handler) serveDocument(w http.ResponseWriter, r *http.Request, g *groupVersion) {
	w.Header().Add("Vary", "Accept")
	format, ok := negotiation.NegotiateMediaTypeOptions(r.Header.Get("Accept"), accepted, negotiation.DefaultEndpointRestrictions)
	if !ok {
		w.WriteHeader(http.StatusNotAcceptable)
		return
	}
	if hash := r.URL.Query().Get("hash"); hash != "" {
		if hash != g.hash {
			http.Redirect(w, r, link(g), http.StatusMovedPermanently)
			return
		}
		w.Header().Set("Cache-Control", "public, immutable")
		w.Header().Set("Expires", time.Now().AddDate(1, 0, 0).Format(time.RFC1123))
	}
	d, err := h.document(r.Context(), g)
	if err != nil {
		utilruntime.HandleError(err)
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	d.serve(w, r, format.Accepted.MediaType)
}

// document returns the document of a group version, and builds it if it is not kept.
func (h *handler) document(ctx context.Context, g *groupVersion) (*document, error) {
	select {
	case h.building <- struct{}{}:
		defer func() { <-h.building }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if kept, ok := h.kept.Get(g.path); ok && kept.(*document).hash == g.hash {
		return kept.(*document), nil
	}
	d, err := newDocument(ctx, g, h.withSchemas)
	if err != nil {
		return nil, err
	}
	h.kept.Add(g.path, d)
	return d, nil
}
