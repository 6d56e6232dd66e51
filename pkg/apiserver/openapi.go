// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"fmt"
	"maps"

	apiextensionsapiserver "k8s.io/apiextensions-apiserver/pkg/apiserver"
	"k8s.io/apimachinery/pkg/runtime"
	openapinamer "k8s.io/apiserver/pkg/endpoints/openapi"
	genericapiserver "k8s.io/apiserver/pkg/server"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	"k8s.io/apiserver/pkg/server/routes"
	"k8s.io/apiserver/pkg/util/openapi"
	aggregatorscheme "k8s.io/kube-aggregator/pkg/apiserver/scheme"
	"k8s.io/kube-openapi/pkg/builder"
	"k8s.io/kube-openapi/pkg/cached"
	"k8s.io/kube-openapi/pkg/common/restfuladapter"
	"k8s.io/kube-openapi/pkg/handler"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"github.com/annex-dev/annex/pkg/apis/scheme"
	generatedopenapi "github.com/annex-dev/annex/pkg/generated/openapi"
)

// ConfigureOpenAPI sets the definitions of all compiled-in kinds of every server in the
// chain, for both versions of OpenAPI. Server-side apply uses them too. installOpenAPI serves them.
func ConfigureOpenAPI(generic *genericapiserver.Config) {
	definitions := openapi.GetOpenAPIDefinitionsWithoutDisabledFeatures(generatedopenapi.GetOpenAPIDefinitions)
	namer := openapinamer.NewDefinitionNamer(scheme.Scheme, apiextensionsapiserver.Scheme, aggregatorscheme.Scheme)
	generic.OpenAPIConfig = genericapiserver.DefaultOpenAPIConfig(definitions, namer)
	generic.OpenAPIConfig.Info.Title = "annex"
	generic.OpenAPIConfig.GetDefinitionName = servedKindsOnly(namer.GetDefinitionName)
	generic.OpenAPIV3Config = genericapiserver.DefaultOpenAPIV3Config(definitions, namer)
	generic.OpenAPIV3Config.Info.Title = "annex"
	generic.OpenAPIV3Config.GetDefinitionName = servedKindsOnly(namer.GetDefinitionName)
	generic.SkipOpenAPIInstallation = true
}

// installOpenAPI serves the documents of a server whose groups are installed. The first request
// builds the v2 document, which few clients use; upstream builds it in each start.
func installOpenAPI(server *genericapiserver.GenericAPIServer, config *genericapiserver.Config) {
	container, mux := server.Handler.GoRestfulContainer, server.Handler.NonGoRestfulMux
	v2 := func() (*spec.Swagger, string, error) {
		document, err := builder.BuildOpenAPISpecFromRoutes(restfuladapter.AdaptWebServices(container.RegisteredWebServices()), config.OpenAPIConfig)
		if err != nil {
			return nil, "", fmt.Errorf("build the OpenAPI v2 document: %w", err)
		}
		document.Definitions = handler.PruneDefaults(document.Definitions)
		return document, "never changes", nil
	}
	handler.NewOpenAPIServiceLazy(cached.Once(cached.Func(v2))).RegisterOpenAPIVersionedService("/openapi/v2", mux)
	routes.OpenAPI{V3Config: config.OpenAPIV3Config}.InstallV3(container, mux)
}

// groupVersionKinds is the extension that names the kinds of a definition.
const groupVersionKinds = "x-kubernetes-group-version-kind"

// definitionName returns a definition's name and extensions, for upstream.
type definitionName = func(name string) (string, spec.Extensions)

// servedKindsOnly drops internal versions from the documents. Kubernetes' kinds have
// one Go type for both, which upstream does not expect.
func servedKindsOnly(name definitionName) definitionName {
	return func(definition string) (string, spec.Extensions) {
		named, extensions := name(definition)
		all, ok := extensions[groupVersionKinds].([]any)
		if !ok {
			return named, extensions
		}
		var served []any
		for _, kind := range all {
			if fields, ok := kind.(map[string]any); !ok || fields["version"] != runtime.APIVersionInternal {
				served = append(served, kind)
			}
		}
		extensions = maps.Clone(extensions)
		extensions[groupVersionKinds] = served
		return named, extensions
	}
}

// GroupRegistries returns the schemes of every server in the chain, which have the groups that
// --runtime-config may name.
func GroupRegistries() []genericoptions.GroupRegistry {
	return []genericoptions.GroupRegistry{scheme.Scheme, apiextensionsapiserver.Scheme, aggregatorscheme.Scheme}
}
