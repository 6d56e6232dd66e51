// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package front

import (
	"net/http"
	"strings"
	"time"

	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	definitionlisters "k8s.io/apiextensions-apiserver/pkg/client/listers/apiextensions/v1"
	"k8s.io/apiserver/pkg/endpoints/metrics"
	"k8s.io/apiserver/pkg/endpoints/request"
)

// Request is a request for custom resources. It is not known whether they have its subresource.
type Request struct {
	Info *request.RequestInfo
	// Definition defines the resource, and Version is the served version that is requested.
	Definition *apiextensionsv1.CustomResourceDefinition
	Version    *apiextensionsv1.CustomResourceDefinitionVersion
}

// NewRequest returns the Request of an HTTP request, or false if upstream's handler would not serve
// it from storage.
func NewRequest(req *http.Request, definitions definitionlisters.CustomResourceDefinitionLister) (*Request, bool) {
	info, ok := request.RequestInfoFrom(req.Context())
	if !ok || !info.IsResourceRequest {
		return nil, false
	}
	definition, err := definitions.Get(info.Resource + "." + info.APIGroup)
	if err != nil {
		return nil, false
	}
	served := servedVersion(definition, info)
	return &Request{Info: info, Definition: definition, Version: served}, served != nil
}

// servedVersion returns the version of a request, or nil if upstream's handler would not serve the
// request from storage.
func servedVersion(definition *apiextensionsv1.CustomResourceDefinition, info *request.RequestInfo) *apiextensionsv1.CustomResourceDefinitionVersion {
	namespaced := definition.Spec.Scope == apiextensionsv1.NamespaceScoped
	if !namespaced && info.Namespace != "" || namespaced && info.Namespace == "" && !acrossNamespaces(info.Verb) {
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

// acrossNamespaces reports whether requests with a verb may be for the objects of all namespaces.
func acrossNamespaces(verb string) bool { return verb == "list" || verb == "watch" }

// Warn adds to a handler what upstream does for deprecated versions.
func (r *Request) Warn(handler http.HandlerFunc) http.HandlerFunc {
	if !r.Version.Deprecated {
		return handler
	}
	return withWarning(handler, deprecationWarning(&r.Definition.Spec, r.Version))
}

// Instrument adds upstream's metrics of requests to a handler.
func (r *Request) Instrument(handler http.HandlerFunc) http.HandlerFunc {
	return metrics.InstrumentHandlerFunc(strings.ToUpper(r.Info.Verb), r.Info.APIGroup, r.Info.APIVersion, r.Info.Resource, r.Info.Subresource,
		metrics.CleanScope(r.Info), metrics.APIServerComponent, r.Version.Deprecated, "", handler)
}

// Observe does as Instrument for a request that was answered.
func (r *Request) Observe(req *http.Request, code, bytes int) {
	received, ok := request.ReceivedTimestampFrom(req.Context())
	if !ok {
		received = time.Now()
	}
	metrics.MonitorRequest(req, strings.ToUpper(r.Info.Verb), r.Info.APIGroup, r.Info.APIVersion, r.Info.Resource, r.Info.Subresource,
		metrics.CleanScope(r.Info), metrics.APIServerComponent, r.Version.Deprecated, "", code, bytes, time.Since(received))
}
