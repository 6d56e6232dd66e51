// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package openapi

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/klauspost/compress/gzip"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/util/workqueue"
	openapihandler "k8s.io/kube-openapi/pkg/handler"
)

const v2Path = "/openapi/v2"

// format is an encoding of the v2 document.
type format int

const (
	jsonFormat format = iota
	protobufFormat
	formats
)

var v2Formats = formatsOf("com.github.proto-openapi.spec.v2.v1.0+protobuf", "com.github.proto-openapi.spec.v2@v1.0+protobuf")

// v2Handler serves the document, and passes on everything else to next.
type v2Handler struct {
	next        http.Handler
	definitions Definitions

	// building guards what follows.
	building building
	// static is the document of next in JSON, which does not change, and tag its hash.
	static []byte
	tag    string
	built  map[types.UID]*definition
	kept   [formats]*v2Document
}

// v2Document is an encoded document, compressed by gzip.
type v2Document struct {
	tag      string
	modified time.Time
	gzipped  []byte
}

// V2Handler adds definitions to the OpenAPI v2 document of next, which has none and does not change.
func V2Handler(next http.Handler, definitions Definitions) http.Handler {
	return &v2Handler{next: next, definitions: definitions, building: newBuilding(), built: map[types.UID]*definition{}}
}

// ServeHTTP implements http.Handler.
func (h *v2Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != v2Path {
		h.next.ServeHTTP(w, r)
		return
	}
	mediaType, ok := negotiate(w, r, v2Formats)
	if !ok {
		return
	}
	requested := jsonFormat
	if mediaType != mediaTypeJSON {
		requested = protobufFormat
	}
	d, err := h.document(r, requested)
	if err != nil {
		utilruntime.HandleError(err)
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	d.serve(w, r, mediaType)
}

// serve writes the document.
func (d *v2Document) serve(w http.ResponseWriter, r *http.Request, mediaType string) {
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
func (h *v2Handler) document(r *http.Request, f format) (*v2Document, error) {
	end, err := h.building.begin(r.Context())
	if err != nil {
		return nil, err
	}
	defer end()
	if err := h.readStatic(r); err != nil {
		return nil, err
	}
	served := h.definitions.served()
	tag := h.tagOf(served)
	if kept := h.kept[f]; kept != nil && kept.tag == tag {
		return kept, nil
	}
	h.kept[f] = nil
	gzipped, err := h.build(r.Context(), served, f)
	if err != nil {
		return nil, fmt.Errorf("build the OpenAPI v2 document: %w", err)
	}
	h.kept[f] = &v2Document{tag: tag, modified: time.Now(), gzipped: gzipped}
	return h.kept[f], nil
}

// readStatic reads the document of next once.
func (h *v2Handler) readStatic(r *http.Request) error {
	if h.static != nil {
		return nil
	}
	code, body := readJSON(h.next, r)
	if code != http.StatusOK {
		return fmt.Errorf("read the OpenAPI v2 document of compiled-in resources: status %d: %s", code, body)
	}
	h.static = body
	h.tag = fmt.Sprintf("%X", sha256.Sum256(h.static))
	return nil
}

// tagOf returns the ETag, which is the same in all replicas.
func (h *v2Handler) tagOf(served []*crd) string {
	hash := sha256.New()
	fmt.Fprintln(hash, h.tag)
	for _, definition := range served {
		fmt.Fprintln(hash, definition.UID, definition.Generation)
	}
	return fmt.Sprintf("%X", hash.Sum(nil))
}

// build builds the document in a format. As in upstream's controller, a definition for which that fails is
// missing. If ctx ends, the next call continues with the remaining definitions.
func (h *v2Handler) build(ctx context.Context, served []*crd, f format) ([]byte, error) {
	static, err := splitJSON(h.static)
	if err != nil {
		return nil, err
	}
	known := h.built
	h.built = make(map[types.UID]*definition, len(served))
	for _, of := range served {
		if before := known[of.UID]; before != nil && before.generation == of.Generation {
			h.built[of.UID] = before
		} else {
			h.built[of.UID] = &definition{generation: of.Generation}
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
		encoded, err := h.built[served[i].UID].in(f, served[i], static, h.definitions)
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
