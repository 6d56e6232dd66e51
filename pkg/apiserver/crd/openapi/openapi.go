// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package openapi adds custom resources to the OpenAPI documents, when these are requested.
//
// Upstream's controllers (k8s.io/apiextensions-apiserver/pkg/controller/openapi and openapiv3) and its aggregator
// build documents for each change of a definition, and keep them decoded. They keep the v2 document, which has all
// resources, four times. This package builds the same documents at a request. It adds the definitions to the v2
// document of the compiled-in resources one after the other, and keeps only compressed bytes. Each group version has
// a v3 document; the package keeps a few of these.
package openapi

import (
	"context"
	"net/http"
	"slices"
	"strings"

	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	crdlisters "k8s.io/apiextensions-apiserver/pkg/client/listers/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/controller/openapi/builder"
	"k8s.io/apiextensions-apiserver/pkg/features"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/endpoints/handlers/negotiation"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/apiserver/pkg/util/responsewriter"
)

type crd = apiextensionsv1.CustomResourceDefinition

// Definitions has the definitions that documents are built from.
type Definitions struct {
	Lister crdlisters.CustomResourceDefinitionLister
	// WithSchemas returns a definition with the schemas that the lister omits.
	WithSchemas func(*apiextensionsv1.CustomResourceDefinition) (*apiextensionsv1.CustomResourceDefinition, error)
}

// served returns the established definitions, in the order of their names.
func (d Definitions) served() []*crd {
	// A lister reads memory and cannot fail.
	all, _ := d.Lister.List(labels.Everything())
	all = slices.DeleteFunc(all, func(definition *crd) bool {
		return !apihelpers.IsCRDConditionTrue(definition, apiextensionsv1.Established)
	})
	slices.SortFunc(all, func(a, b *crd) int { return strings.Compare(a.Name, b.Name) })
	return all
}

func buildOptions(v2 bool) builder.Options {
	return builder.Options{V2: v2, IncludeSelectableFields: utilfeature.DefaultFeatureGate.Enabled(features.CustomResourceFieldSelectors)}
}

const mediaTypeJSON = "application/json"

// formatsOf returns the formats that clients may request, as upstream's handlers do: JSON, and protobuf with a sub
// type and a deprecated one.
func formatsOf(protobuf, deprecated string) []runtime.SerializerInfo {
	return []runtime.SerializerInfo{
		{MediaType: mediaTypeJSON, MediaTypeType: "application", MediaTypeSubType: "json"},
		{MediaType: "application/" + protobuf, MediaTypeType: "application", MediaTypeSubType: protobuf},
		{MediaType: "application/" + protobuf, MediaTypeType: "application", MediaTypeSubType: deprecated},
	}
}

// negotiate returns the media type of a response, or false after a response that there is none.
func negotiate(w http.ResponseWriter, r *http.Request, formats []runtime.SerializerInfo) (mediaType string, ok bool) {
	w.Header().Add("Vary", "Accept")
	format, ok := negotiation.NegotiateMediaTypeOptions(r.Header.Get("Accept"), formats, negotiation.DefaultEndpointRestrictions)
	if !ok {
		w.WriteHeader(http.StatusNotAcceptable)
		return "", false
	}
	return format.Accepted.MediaType, true
}

// readJSON returns the response of next to a request, in JSON.
func readJSON(next http.Handler, r *http.Request) (code int, body []byte) {
	response := responsewriter.NewInMemoryResponseWriter()
	plain := r.Clone(r.Context())
	plain.Header = http.Header{"Accept": {mediaTypeJSON}}
	next.ServeHTTP(response, plain)
	return response.RespCode(), response.Data()
}

// building is full while a document is built: one at a time, to bound memory.
type building chan struct{}

func newBuilding() building { return make(building, 1) }

func (b building) begin(ctx context.Context) (end func(), err error) {
	select {
	case b <- struct{}{}:
		return func() { <-b }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
