// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package reads

import (
	"net/http"
	"time"

	definitionlisters "k8s.io/apiextensions-apiserver/pkg/client/listers/apiextensions/v1"
	"k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/features"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/component-base/featuregate"

	"github.com/annex-dev/annex/pkg/apiserver/front"
	"github.com/annex-dev/annex/pkg/storage/watchcache"
)

// Registry has the handlers of the custom resources that this package serves.
type Registry = front.Registry[*endpoint]

// NewRegistry returns an empty Registry. minRequestTimeout is the minimum duration of watches.
func NewRegistry(minRequestTimeout time.Duration) *Registry {
	return front.NewRegistry(func(from watchcache.Endpoint) *endpoint { return newEndpoint(from, minRequestTimeout) })
}

// Handler serves what it can from a Registry. It passes on everything else to next, which is
// upstream's handler of custom resources: it also creates the storage at the first request for
// a resource.
func Handler(next http.Handler, registry *Registry, definitions definitionlisters.CustomResourceDefinitionLister) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		handler := handlerFor(req, registry, definitions)
		if handler == nil {
			handler = next
		}
		handler.ServeHTTP(w, req)
	})
}

// handlerFor returns the handler of a request that can be served, or nil.
func handlerFor(req *http.Request, registry *Registry, definitions definitionlisters.CustomResourceDefinitionLister) http.Handler {
	if info, ok := request.RequestInfoFrom(req.Context()); !ok || info.Subresource != "" || !isRead(info.Verb) {
		return nil
	}
	r, ok := front.NewRequest(req, definitions)
	if !ok {
		return nil
	}
	e := registry.Find(r.Definition, r.Version.Name)
	if e == nil {
		return nil
	}
	handler := e.Endpoint().handlerFor(req, r.Info.Verb)
	if handler == nil {
		return nil
	}
	if r.Info.Verb == "watch" {
		handler = withBuffer(handler)
	} else {
		handler = withGzip(handler)
	}
	return e.Wait(r.Instrument(r.Warn(handler)))
}

func isRead(verb string) bool { return verb == "get" || verb == "list" || verb == "watch" }

// EncodedReads keeps custom resources in watch caches as JSON, from which reads are served.
const EncodedReads featuregate.Feature = "EncodedReads"

func init() {
	runtime.Must(utilfeature.DefaultMutableFeatureGate.Add(map[featuregate.Feature]featuregate.FeatureSpec{
		EncodedReads: {Default: true, PreRelease: featuregate.Beta},
	}))
}

// Enabled reports whether this package serves custom resources. Responses in CBOR, an alpha of
// upstream, need decoded objects.
func Enabled() bool {
	return utilfeature.DefaultFeatureGate.Enabled(EncodedReads) && !utilfeature.DefaultFeatureGate.Enabled(features.CBORServingAndStorage)
}
