// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package reads

import (
	"net/http"
	"strings"

	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	definitionlisters "k8s.io/apiextensions-apiserver/pkg/client/listers/apiextensions/v1"
	"k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apiserver/pkg/endpoints/metrics"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/features"
	"k8s.io/apiserver/pkg/server/filters"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/component-base/featuregate"
)

// Handler serves what it can from a Registry. It passes on everything else to next, which is
// upstream's handler of custom resources: it also creates the storage at the first request for
// a resource.
func Handler(next http.Handler, registry *Registry, definitions definitionlisters.CustomResourceDefinitionLister) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		handler := registry.handlerFor(req, definitions)
		if handler == nil {
			handler = next
		}
		handler.ServeHTTP(w, req)
	})
}

// handlerFor returns the handler of a request that can be served, or nil.
func (r *Registry) handlerFor(req *http.Request, definitions definitionlisters.CustomResourceDefinitionLister) http.Handler {
	info, ok := request.RequestInfoFrom(req.Context())
	if !ok || !info.IsResourceRequest || info.Subresource != "" || !isRead(info.Verb) {
		return nil
	}
	definition, err := definitions.Get(info.Resource + "." + info.APIGroup)
	if err != nil {
		return nil
	}
	served := servedVersion(definition, info)
	if served == nil {
		return nil
	}
	e := r.find(definition, info.APIVersion)
	if e == nil {
		return nil
	}
	handler := e.endpoint().handlerFor(req, info.Verb)
	if handler == nil {
		return nil
	}
	if info.Verb == "watch" {
		handler = withBuffer(handler)
	} else {
		handler = withGzip(handler)
	}
	if served.Deprecated {
		handler = withWarning(handler, deprecationWarning(&definition.Spec, served))
	}
	handler = metrics.InstrumentHandlerFunc(strings.ToUpper(info.Verb), info.APIGroup, info.APIVersion, info.Resource, "",
		metrics.CleanScope(info), metrics.APIServerComponent, served.Deprecated, "", handler)
	return filters.WithWaitGroup(handler, isWatch, &e.requests)
}

func isRead(verb string) bool { return verb == "get" || verb == "list" || verb == "watch" }

func isWatch(_ *http.Request, info *request.RequestInfo) bool { return info.Verb == "watch" }

// servedVersion returns the version of a request, or nil if upstream's handler would not serve the
// request from storage.
func servedVersion(definition *apiextensionsv1.CustomResourceDefinition, info *request.RequestInfo) *apiextensionsv1.CustomResourceDefinitionVersion {
	namespaced := definition.Spec.Scope == apiextensionsv1.NamespaceScoped
	if !namespaced && info.Namespace != "" || namespaced && info.Namespace == "" && info.Verb == "get" {
		return nil
	}
	if !apihelpers.IsCRDConditionTrue(definition, apiextensionsv1.NamesAccepted) &&
		!apihelpers.IsCRDConditionTrue(definition, apiextensionsv1.Established) {
		return nil
	}
	for i := range definition.Spec.Versions {
		if v := &definition.Spec.Versions[i]; v.Name == info.APIVersion && v.Served {
			return v
		}
	}
	return nil
}

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
