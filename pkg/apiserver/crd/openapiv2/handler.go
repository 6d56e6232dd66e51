// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package openapiv2

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/klauspost/compress/gzip"
	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	crdlisters "k8s.io/apiextensions-apiserver/pkg/client/listers/apiextensions/v1"
	"k8s.io/apimachinery/pkg/labels"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apiserver/pkg/endpoints/handlers/negotiation"
	"k8s.io/apiserver/pkg/util/responsewriter"
	"k8s.io/client-go/util/workqueue"
	openapihandler "k8s.io/kube-openapi/pkg/handler"
)

// path is the path of the document.
const path = "/openapi/v2"

// format is an encoding of the document.
type format int

const (
	jsonFormat format = iota
	protobufFormat
	formats
)

const (
	mediaTypeJSON     = "application/json"
	subTypeProtobuf   = "com.github.proto-openapi.spec.v2.v1.0+protobuf"
	subTypeDeprecated = "com.github.proto-openapi.spec.v2@v1.0+protobuf"
)

// accepted has the formats that clients may ask for, as in upstream's handler.
var accepted = []apiruntime.SerializerInfo{
	{MediaType: mediaTypeJSON, MediaTypeType: "application", MediaTypeSubType: "json"},
	{MediaType: "application/" + subTypeProtobuf, MediaTypeType: "application", MediaTypeSubType: subTypeProtobuf},
	{MediaType: "application/" + subTypeProtobuf, MediaTypeType: "application", MediaTypeSubType: subTypeDeprecated},
}

// handler serves the document, and passes on everything else to next.
type handler struct {
	next        http.Handler
	definitions crdlisters.CustomResourceDefinitionLister
	withSchemas WithSchemasFunc

	// building is full while a document is built, and guards what follows: one at a time, to bound memory.
	building chan struct{}
	// static is the document of next in JSON, which does not change, and tag its hash.
	static []byte
	tag    string
	built  map[types.UID]*definition
	kept   [formats]*document
}

// document is an encoded document, compressed by gzip.
type document struct {
	tag      string
	modified time.Time
	gzipped  []byte
}

// WithSchemasFunc returns a definition with the schemas that a lister omits.
type WithSchemasFunc func(*apiextensionsv1.CustomResourceDefinition) (*apiextensionsv1.CustomResourceDefinition, error)

// Handler adds definitions to the OpenAPI v2 document of next, which has none and does not change.
func Handler(next http.Handler, definitions crdlisters.CustomResourceDefinitionLister, withSchemas WithSchemasFunc) http.Handler {
	return &handler{next: next, definitions: definitions, withSchemas: withSchemas, building: make(chan struct{}, 1), built: map[types.UID]*definition{}}
}

// ServeHTTP implements http.Handler.
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != path {
		h.next.ServeHTTP(w, r)
		return
	}
	w.Header().Add("Vary", "Accept")
	media, ok := negotiation.NegotiateMediaTypeOptions(r.Header.Get("Accept"), accepted, negotiation.DefaultEndpointRestrictions)
	if !ok {
		w.WriteHeader(http.StatusNotAcceptable)
		return
	}
	requested := jsonFormat
	if media.Accepted.MediaType != mediaTypeJSON {
		requested = protobufFormat
	}
	d, err := h.document(r, requested)
	if err != nil {
		utilruntime.HandleError(err)
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	d.serve(w, r, media.Accepted.MediaType)
}

// serve writes the document.
func (d *document) serve(w http.ResponseWriter, r *http.Request, mediaType string) {
	w.Header().Set("Content-Type", mediaType)
	w.Header().Set("Etag", strconv.Quote(d.tag))
	w.Header().Add("Vary", "Accept-Encoding")
	if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		w.Header().Set("Content-Encoding", "gzip")
		http.ServeContent(w, r, "", d.modified, bytes.NewReader(d.gzipped))
		return
	}
	if strings.Contains(r.Header.Get("If-None-Match"), d.tag) {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	reader, err := gzip.NewReader(bytes.NewReader(d.gzipped))
	if err == nil {
		_, err = io.Copy(w, reader)
	}
	if err != nil {
		utilruntime.HandleErrorWithContext(r.Context(), err, "Write the OpenAPI v2 document")
	}
}

// document returns the current document, and builds it if it is not kept.
func (h *handler) document(r *http.Request, f format) (*document, error) {
	select {
	case h.building <- struct{}{}:
		defer func() { <-h.building }()
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
	if err := h.readStatic(r); err != nil {
		return nil, err
	}
	served := h.served()
	tag := h.tagOf(served)
	if kept := h.kept[f]; kept != nil && kept.tag == tag {
		return kept, nil
	}
	h.kept[f] = nil
	gzipped, err := h.build(r.Context(), served, f)
	if err != nil {
		return nil, fmt.Errorf("build the OpenAPI v2 document: %w", err)
	}
	h.kept[f] = &document{tag: tag, modified: time.Now(), gzipped: gzipped}
	return h.kept[f], nil
}

// readStatic reads the document of next once.
func (h *handler) readStatic(r *http.Request) error {
	if h.static != nil {
		return nil
	}
	response := responsewriter.NewInMemoryResponseWriter()
	plain := r.Clone(r.Context())
	plain.Header = http.Header{"Accept": {mediaTypeJSON}}
	h.next.ServeHTTP(response, plain)
	if response.RespCode() != http.StatusOK {
		return fmt.Errorf("read the OpenAPI v2 document of compiled-in resources: status %d: %s", response.RespCode(), response.Data())
	}
	h.static = response.Data()
	h.tag = fmt.Sprintf("%X", sha256.Sum256(h.static))
	return nil
}

// served returns the definitions that the document has, in the order of their names.
func (h *handler) served() []*apiextensionsv1.CustomResourceDefinition {
	// A lister reads memory and cannot fail.
	all, _ := h.definitions.List(labels.Everything())
	all = slices.DeleteFunc(all, func(crd *apiextensionsv1.CustomResourceDefinition) bool {
		return !apihelpers.IsCRDConditionTrue(crd, apiextensionsv1.Established)
	})
	slices.SortFunc(all, func(a, b *apiextensionsv1.CustomResourceDefinition) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// tagOf returns the ETag, which is the same in all replicas.
func (h *handler) tagOf(served []*apiextensionsv1.CustomResourceDefinition) string {
	hash := sha256.New()
	fmt.Fprintln(hash, h.tag)
	for _, crd := range served {
		fmt.Fprintln(hash, crd.UID, crd.Generation)
	}
	return fmt.Sprintf("%X", hash.Sum(nil))
}

// build builds the document in a format. One of a definition that cannot be built is missing, as
// in upstream's controller. If ctx ends, the next call goes on with the definition that is the next.
func (h *handler) build(ctx context.Context, served []*apiextensionsv1.CustomResourceDefinition, f format) ([]byte, error) {
	static, err := splitJSON(h.static)
	if err != nil {
		return nil, err
	}
	known := h.built
	h.built = make(map[types.UID]*definition, len(served))
	for _, crd := range served {
		tag := strconv.FormatInt(crd.Generation, 10)
		if before := known[crd.UID]; before != nil && before.tag == tag {
			h.built[crd.UID] = before
		} else {
			h.built[crd.UID] = &definition{tag: tag}
		}
	}
	whole, split := static, splitJSON
	if f == protobufFormat {
		split = splitProtobuf
		encoded, err := openapihandler.ToProtoBinary(h.static)
		if err != nil {
			return nil, err
		}
		if whole, err = splitProtobuf(encoded); err != nil {
			return nil, err
		}
	}
	added := make([]*parts, len(served))
	workqueue.ParallelizeUntil(ctx, runtime.GOMAXPROCS(0), len(served), func(i int) {
		encoded, err := h.built[served[i].UID].in(f, served[i], static, h.withSchemas)
		if err == nil {
			added[i], err = split(encoded)
		}
		if err != nil {
			utilruntime.HandleError(err)
			added[i] = &parts{}
		}
	})
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	for _, p := range added {
		whole.add(p)
	}
	return whole.gzip(f)
}

// gzip writes a document.
func (p *parts) gzip(f format) ([]byte, error) {
	var gzipped bytes.Buffer
	w := gzip.NewWriter(&gzipped)
	write := p.writeJSON
	if f == protobufFormat {
		write = p.writeProtobuf
	}
	if err := write(w); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return gzipped.Bytes(), nil
}
