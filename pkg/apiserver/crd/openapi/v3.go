// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package openapi

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

	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/tools/cache"
	"k8s.io/kube-openapi/pkg/handler3"
	"k8s.io/utils/lru"
)

// v3Root is the path of the list of documents, and begins theirs.
const v3Root = "/openapi/v3"

// keptDocuments bounds the kept documents. Clients request only documents of the groups that they use.
const keptDocuments = 16

var v3Formats = formatsOf("com.github.proto-openapi.spec.v3.v1.0+protobuf", "com.github.proto-openapi.spec.v3@v1.0+protobuf")

// v3Handler serves the documents of custom resources, and the documents of next.
type v3Handler struct {
	next        http.Handler
	definitions Definitions

	mu sync.Mutex
	// current is nil after a change of a definition.
	current *index

	building building
	kept     *lru.Cache
}

// V3Handler serves the documents of custom resources. It passes on everything else to next, and
// adds the documents to its list of documents, which must not change. informer has the definitions.
func V3Handler(next http.Handler, definitions Definitions, informer cache.SharedInformer) (http.Handler, error) {
	h := &v3Handler{next: next, definitions: definitions, building: newBuilding(), kept: lru.New(keptDocuments)}
	changed := func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.current = nil
	}
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
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
func (h *v3Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == v3Root {
		h.serveList(w, r)
		return
	}
	path, isDocument := strings.CutPrefix(r.URL.Path, v3Root+"/")
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
func (h *v3Handler) getIndex() *index {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.current == nil {
		h.current = newIndex(h.definitions.served())
	}
	return h.current
}

// serveList serves the list of documents. The aggregator reads it once a second.
func (h *v3Handler) serveList(w http.ResponseWriter, r *http.Request) {
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
func (h *v3Handler) nextList(w http.ResponseWriter, r *http.Request) (list handler3.OpenAPIV3Discovery, ok bool) {
	code, body := readJSON(h.next, r)
	if code != http.StatusOK {
		w.WriteHeader(code)
		_, _ = w.Write(body)
		return list, false
	}
	if err := json.Unmarshal(body, &list); err != nil {
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
	return (&url.URL{Path: v3Root + "/" + g.path, RawQuery: url.Values{"hash": {g.hash}}.Encode()}).String()
}

// serveDocument serves a document as upstream's handler3 does: clients may keep the document of
// a hash, and are redirected from outdated hashes.
func (h *v3Handler) serveDocument(w http.ResponseWriter, r *http.Request, g *groupVersion) {
	mediaType, ok := negotiate(w, r, v3Formats)
	if !ok {
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
	d.serve(w, r, mediaType)
}

// document returns the document of a group version, and builds it if it is not kept.
func (h *v3Handler) document(ctx context.Context, g *groupVersion) (*v3Document, error) {
	end, err := h.building.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	if kept, ok := h.kept.Get(g.path); ok && kept.(*v3Document).hash == g.hash {
		return kept.(*v3Document), nil
	}
	d, err := newV3Document(ctx, g, h.definitions)
	if err != nil {
		return nil, err
	}
	h.kept.Add(g.path, d)
	return d, nil
}
