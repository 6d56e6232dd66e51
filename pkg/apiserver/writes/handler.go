// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package writes

import (
	"bytes"
	"errors"
	"io"
	"net/http"

	definitionlisters "k8s.io/apiextensions-apiserver/pkg/client/listers/apiextensions/v1"
	"k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apiserver/pkg/admission"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/component-base/featuregate"

	"github.com/annex-dev/annex/pkg/apiserver/front"
	"github.com/annex-dev/annex/pkg/apiserver/writes/plan"
	"github.com/annex-dev/annex/pkg/storage/watchcache"
)

// PlannedWrites serves writes of custom resources from plans. It needs encoded reads.
const PlannedWrites featuregate.Feature = "PlannedWrites"

func init() {
	runtime.Must(utilfeature.DefaultMutableFeatureGate.Add(map[featuregate.Feature]featuregate.FeatureSpec{
		PlannedWrites: {Default: true, PreRelease: featuregate.Beta},
	}))
}

// Enabled reports whether this package serves custom resources.
func Enabled() bool { return utilfeature.DefaultFeatureGate.Enabled(PlannedWrites) }

// Registry has the endpoints of the custom resources that this package serves.
type Registry = front.Registry[*endpoint]

// NewRegistry returns an empty Registry. All writes pass the admission plugins of chain.
func NewRegistry(chain admission.Interface, maxBodyBytes int64) *Registry {
	registerMetrics()
	shared := newSharedRecents()
	return front.NewRegistry(func(from watchcache.Endpoint) *endpoint { return newEndpoint(from, chain, shared, maxBodyBytes) })
}

// Handler serves what it can from a Registry. It passes on everything else to next, with the body.
func Handler(next http.Handler, registry *Registry, definitions definitionlisters.CustomResourceDefinitionLister) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		write, ok := writeOf(req)
		if !ok || !serve(w, req, write, registry, definitions) {
			next.ServeHTTP(w, req)
		}
	})
}

// serve reports whether it has answered a request.
func serve(
	w http.ResponseWriter, req *http.Request, write plan.Write, registry *Registry, definitions definitionlisters.CustomResourceDefinitionLister,
) bool {
	r, ok := front.NewRequest(req, definitions)
	if !ok {
		return false
	}
	entry := registry.Find(r.Definition, r.Version.Name)
	if entry == nil {
		return false
	}
	var err error
	entry.Wait(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		err = entry.Endpoint().serve(w, req, r, write)
	})).ServeHTTP(w, req)
	verb := r.Info.Verb
	if write.Apply {
		verb = "apply"
	}
	plannedWrites.WithLabelValues(verb, reasonOf(err)).Inc()
	return err == nil
}

// reasonOf returns why a write was not planned, or "".
func reasonOf(err error) string {
	var unsure plan.Unsure
	switch {
	case err == nil:
		return ""
	case errors.As(err, &unsure):
		return string(unsure)
	}
	return "error"
}

// maxPlanned is the size of the largest body and of the largest object that are planned: a plan takes several times as much
// memory.
const maxPlanned = 1 << 20

// readBody returns the body of a request, which can be read again. It returns nil for a large one, and after an error,
// which the next reader meets again.
func readBody(req *http.Request) []byte {
	rest := req.Body
	content := bytes.NewBuffer(make([]byte, 0, min(max(req.ContentLength, 0), maxPlanned)+bytes.MinRead))
	_, err := content.ReadFrom(io.LimitReader(rest, maxPlanned+1))
	body := content.Bytes()
	if err == nil && len(body) <= maxPlanned {
		rewind(req, body)
		return body
	}
	req.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(body), rest), rest}
	return nil
}

// rewind makes a request return a body that was read.
func rewind(req *http.Request, body []byte) { req.Body = io.NopCloser(bytes.NewReader(body)) }
