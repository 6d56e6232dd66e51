// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"fmt"
	"net/url"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensionsapiserver "k8s.io/apiextensions-apiserver/pkg/apiserver"
	definitionlisters "k8s.io/apiextensions-apiserver/pkg/client/listers/apiextensions/v1"
	apiextensionsoptions "k8s.io/apiextensions-apiserver/pkg/cmd/server/options"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	genericapiserver "k8s.io/apiserver/pkg/server"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	serverstorage "k8s.io/apiserver/pkg/server/storage"
	"k8s.io/apiserver/pkg/util/webhook"

	"github.com/annex-dev/annex/pkg/apiserver/encodedreads"
	"github.com/annex-dev/annex/pkg/apiserver/openapiv3"
	"github.com/annex-dev/annex/pkg/storage/encoded"
	"github.com/annex-dev/annex/pkg/storage/routing"
)

func (c CompletedConfig) newExtensions(delegate genericapiserver.DelegationTarget) (*apiextensionsapiserver.CustomResourceDefinitions, error) {
	// Upstream stores CRDs as v1beta1 for old clusters; annex has none.
	generic, etcd, err := c.forDelegate(upstreamServer{
		stored: apiextensionsv1.SchemeGroupVersion, codecs: apiextensionsapiserver.Codecs,
		scheme: apiextensionsapiserver.Scheme, resources: apiextensionsapiserver.DefaultAPIResourceConfigSource(),
	})
	if err != nil {
		return nil, err
	}
	generic.LoopbackClientConfig = retryConflicts(generic.LoopbackClientConfig)
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
	informer := server.Informers.Apiextensions().V1().CustomResourceDefinitions()
	definitions = informer.Lister()
	if err := shareSpecs(informer.Informer()); err != nil {
		return nil, err
	}
	handler := server.GenericAPIServer.Handler
	if handler.Director, err = openapiv3.Handler(handler.Director, informer); err != nil {
		return nil, fmt.Errorf("serve OpenAPI v3 of custom resources: %w", err)
	}
	if encodedReads != nil {
		handler.Director = encodedreads.Handler(handler.Director, encodedReads, definitions)
	}
	return server, nil
}

// upstreamServer is a server of the chain that upstream builds.
type upstreamServer struct {
	// stored is the version of its objects in etcd.
	stored    schema.GroupVersion
	codecs    serializer.CodecFactory
	scheme    *runtime.Scheme
	resources *serverstorage.ResourceConfig
}

// forDelegate returns copies of the generic configuration and of that of etcd for one of
// the outer or inner servers. Hooks belong to one server only and would be rejected as
// duplicates; each server has its own storage.
func (c CompletedConfig) forDelegate(server upstreamServer) (generic genericapiserver.Config, etcd genericoptions.EtcdOptions, err error) {
	generic, etcd = *c.generic, c.extra.Etcd
	generic.PostStartHooks = map[string]genericapiserver.PostStartHookConfigEntry{}
	generic.RESTOptionsGetter = nil
	etcd.SkipHealthEndpoints = true
	etcd.StorageConfig.Codec = server.codecs.LegacyCodec(server.stored)
	etcd.StorageConfig.EncodeVersioner = server.stored
	if err := etcd.ApplyTo(&generic); err != nil {
		return generic, etcd, fmt.Errorf("configure storage: %w", err)
	}
	generic.RESTOptionsGetter = c.router.Pinned(generic.RESTOptionsGetter)
	if err := c.extra.APIEnablement.ApplyTo(&generic, server.resources, server.scheme); err != nil {
		return generic, etcd, fmt.Errorf("--runtime-config: %w", err)
	}
	return generic, etcd, nil
}

// noServices resolves no Service, for the reason that it holds.
type noServices string

var _ webhook.ServiceResolver = NoServices

// NoServices resolves no Service: a standalone annex has none to send webhooks to.
const NoServices noServices = "a standalone annex has no Services: set clientConfig.url instead of clientConfig.service"

// ResolveEndpoint always returns an error.
func (reason noServices) ResolveEndpoint(namespace, name string, _ int32) (*url.URL, error) {
	return nil, fmt.Errorf("resolve Service %s/%s: %s", namespace, name, string(reason))
}
