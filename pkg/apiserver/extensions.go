// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"errors"
	"fmt"
	"net/url"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensionsapiserver "k8s.io/apiextensions-apiserver/pkg/apiserver"
	definitionlisters "k8s.io/apiextensions-apiserver/pkg/client/listers/apiextensions/v1"
	apiextensionsoptions "k8s.io/apiextensions-apiserver/pkg/cmd/server/options"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/util/webhook"

	"github.com/annex-dev/annex/pkg/apiserver/encodedreads"
	"github.com/annex-dev/annex/pkg/storage/encoded"
	"github.com/annex-dev/annex/pkg/storage/routing"
)

func (c CompletedConfig) newExtensions(delegate genericapiserver.DelegationTarget) (*apiextensionsapiserver.CustomResourceDefinitions, error) {
	generic := c.copyForDelegate()
	etcd := c.extra.Etcd
	etcd.SkipHealthEndpoints = true
	// Upstream stores CRDs as v1beta1 for old clusters; annex has none.
	etcd.StorageConfig.Codec = apiextensionsapiserver.Codecs.LegacyCodec(apiextensionsv1.SchemeGroupVersion)
	etcd.StorageConfig.EncodeVersioner = apiextensionsv1.SchemeGroupVersion
	if err := etcd.ApplyTo(&generic); err != nil {
		return nil, fmt.Errorf("configure storage: %w", err)
	}
	generic.RESTOptionsGetter = c.router.Pinned(generic.RESTOptionsGetter)
	if err := c.extra.APIEnablement.ApplyTo(&generic, apiextensionsapiserver.DefaultAPIResourceConfigSource(), apiextensionsapiserver.Scheme); err != nil {
		return nil, fmt.Errorf("--runtime-config: %w", err)
	}
	// The lister belongs to the server that is created below, and only its requests use
	// it.
	var definitions definitionlisters.CustomResourceDefinitionLister
	definition := func(name string) (*apiextensionsv1.CustomResourceDefinition, error) { return definitions.Get(name) }
	custom := apiextensionsoptions.NewCRDRESTOptionsGetter(etcd, generic.ResourceTransformers, generic.StorageObjectCountTracker)
	var encodedReads *encodedreads.Registry
	var add routing.AddEncodedFunc
	if encoded.Enabled() {
		encodedReads = encodedreads.NewRegistry(time.Duration(generic.MinRequestTimeout) * time.Second)
		add = encodedReads.Add
	}
	config := apiextensionsapiserver.Config{
		GenericConfig: &genericapiserver.RecommendedConfig{Config: generic, SharedInformerFactory: c.extra.Informers},
		ExtraConfig: apiextensionsapiserver.ExtraConfig{
			CRDRESTOptionsGetter: c.router.Custom(custom, definition, add),
			MasterCount:          c.extra.servers(),
			ServiceResolver:      c.extra.ServiceResolver,
			AuthResolverWrapper:  c.extra.WebhookCredentials,
		},
	}
	server, err := config.Complete().New(delegate)
	if err != nil {
		return nil, err
	}
	definitions = server.Informers.Apiextensions().V1().CustomResourceDefinitions().Lister()
	if encodedReads != nil {
		handler := server.GenericAPIServer.Handler
		handler.Director = encodedreads.Handler(handler.Director, encodedReads, definitions)
	}
	return server, nil
}

// copyForDelegate returns a copy of the generic configuration for one of the outer or
// inner servers. Hooks belong to one server only and would be rejected as duplicates;
// each server has its own storage.
func (c CompletedConfig) copyForDelegate() genericapiserver.Config {
	generic := *c.generic
	generic.PostStartHooks = map[string]genericapiserver.PostStartHookConfigEntry{}
	generic.RESTOptionsGetter = nil
	return generic
}

var errNoServices = errors.New("a standalone annex has no Services: set clientConfig.url instead of clientConfig.service")

// NoServices resolves no Service: a standalone annex has none to send webhooks to.
type NoServices struct{}

var _ webhook.ServiceResolver = NoServices{}

// ResolveEndpoint always returns an error.
func (NoServices) ResolveEndpoint(namespace, name string, _ int32) (*url.URL, error) {
	return nil, fmt.Errorf("resolve Service %s/%s: %w", namespace, name, errNoServices)
}
