// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	apiextensionsapiserver "k8s.io/apiextensions-apiserver/pkg/apiserver"
	openapinamer "k8s.io/apiserver/pkg/endpoints/openapi"
	genericapiserver "k8s.io/apiserver/pkg/server"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	"k8s.io/apiserver/pkg/util/openapi"
	aggregatorscheme "k8s.io/kube-aggregator/pkg/apiserver/scheme"

	"github.com/annex-dev/annex/pkg/apiserver/scheme"
	generatedopenapi "github.com/annex-dev/annex/pkg/generated/openapi"
)

// ConfigureOpenAPI sets the definitions of all compiled-in kinds, those of
// every server in the chain, for both versions of OpenAPI. Server-side apply
// needs them as much as readers do.
func ConfigureOpenAPI(generic *genericapiserver.Config) {
	definitions := openapi.GetOpenAPIDefinitionsWithoutDisabledFeatures(generatedopenapi.GetOpenAPIDefinitions)
	namer := openapinamer.NewDefinitionNamer(scheme.Scheme, apiextensionsapiserver.Scheme, aggregatorscheme.Scheme)
	generic.OpenAPIConfig = genericapiserver.DefaultOpenAPIConfig(definitions, namer)
	generic.OpenAPIConfig.Info.Title = "annex"
	generic.OpenAPIV3Config = genericapiserver.DefaultOpenAPIV3Config(definitions, namer)
	generic.OpenAPIV3Config.Info.Title = "annex"
}

// GroupRegistries returns the schemes of every server in the chain, which know
// the groups that --runtime-config may name.
func GroupRegistries() []genericoptions.GroupRegistry {
	return []genericoptions.GroupRegistry{scheme.Scheme, apiextensionsapiserver.Scheme, aggregatorscheme.Scheme}
}
