// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package openapi

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"time"

	"k8s.io/apiextensions-apiserver/pkg/controller/openapi/builder"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/kube-openapi/pkg/handler3"
	"k8s.io/kube-openapi/pkg/spec3"
)

// v3Document is the encoded document of a group version.
type v3Document struct {
	hash     string
	json     []byte
	modified time.Time
	protobuf func() ([]byte, error)
}

func newV3Document(ctx context.Context, g *groupVersion, definitions Definitions) (*v3Document, error) {
	specs := g.specs(ctx, definitions)
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	merged, err := builder.MergeSpecsV3(specs...)
	if err != nil {
		return nil, fmt.Errorf("build the OpenAPI v3 document of %s: %w", g.path, err)
	}
	encoded, err := json.Marshal(merged)
	if err != nil {
		return nil, fmt.Errorf("encode the OpenAPI v3 document of %s: %w", g.path, err)
	}
	return &v3Document{
		hash: g.hash, json: encoded, modified: time.Now(),
		protobuf: sync.OnceValues(func() ([]byte, error) { return handler3.ToV3ProtoBinary(encoded) }),
	}, nil
}

// specs returns the documents of the definitions. As in upstream's controller, a definition for which that fails
// is missing.
func (g *groupVersion) specs(ctx context.Context, definitions Definitions) []*spec3.OpenAPI {
	specs := make([]*spec3.OpenAPI, len(g.definitions))
	workqueue.ParallelizeUntil(ctx, runtime.GOMAXPROCS(0), len(specs), func(i int) {
		definition, err := definitions.WithSchemas(g.definitions[i])
		if err == nil {
			specs[i], err = builder.BuildOpenAPIV3(definition, g.version, buildOptions(false))
		}
		if err != nil {
			utilruntime.HandleError(fmt.Errorf("build the OpenAPI v3 document of %s: %w", g.definitions[i].Name, err))
		}
	})
	return slices.DeleteFunc(specs, func(spec *spec3.OpenAPI) bool { return spec == nil })
}

// serve writes the document in a format.
func (d *v3Document) serve(w http.ResponseWriter, r *http.Request, mediaType string) {
	body := d.json
	if mediaType != mediaTypeJSON {
		var err error
		if body, err = d.protobuf(); err != nil {
			utilruntime.HandleError(fmt.Errorf("encode an OpenAPI v3 document in protobuf: %w", err))
			http.Error(w, "the document cannot be encoded", http.StatusInternalServerError)
			return
		}
	}
	w.Header().Set("Content-Type", mediaType)
	w.Header().Set("Etag", strconv.Quote(d.hash))
	http.ServeContent(w, r, "", d.modified, bytes.NewReader(body))
}
