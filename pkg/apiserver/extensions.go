// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"fmt"
	"net/url"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensionsapiserver "k8s.io/apiextensions-apiserver/pkg/apiserver"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	apiextensionsoptions "k8s.io/apiextensions-apiserver/pkg/cmd/server/options"
	"k8s.io/apiextensions-apiserver/pkg/controller/finalizer"
	"k8s.io/apiextensions-apiserver/pkg/registry/customresourcedefinition"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/registry/rest"
	genericapiserver "k8s.io/apiserver/pkg/server"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	serverstorage "k8s.io/apiserver/pkg/server/storage"
	"k8s.io/apiserver/pkg/util/webhook"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"github.com/annex-dev/annex/pkg/apiserver/crd"
	"github.com/annex-dev/annex/pkg/storage/routing"
)

// newExtensions builds upstream's server of CRDs and their objects from its parts, as
// k8s.io/apiextensions-apiserver/pkg/apiserver/apiserver.go does, with these differences: the
// informer has definitions without schemas, discovery is built once per group, and OpenAPI on
// request.
func (c CompletedConfig) newExtensions(delegate genericapiserver.DelegationTarget) (*genericapiserver.GenericAPIServer, *crd.Informer, finalizer.CRClientGetter, error) {
	// Upstream stores CRDs as v1beta1 for old clusters; annex has none.
	config, etcd, err := c.forDelegate(upstreamServer{
		stored: apiextensionsv1.SchemeGroupVersion, codecs: apiextensionsapiserver.Codecs,
		scheme: apiextensionsapiserver.Scheme, resources: apiextensionsapiserver.DefaultAPIResourceConfigSource(),
	})
	if err != nil {
		return nil, nil, nil, err
	}
	config.LoopbackClientConfig = retryConflicts(config.LoopbackClientConfig)
	config.EnableDiscovery = false
	validation.RegisterMetrics()
	server, err := config.Complete(c.extra.Informers).New("apiextensions-apiserver", delegate)
	if err != nil {
		return nil, nil, nil, err
	}
	crds, staticSpec, err := installDefinitions(server, config.RESTOptionsGetter)
	if err != nil {
		return nil, nil, nil, fmt.Errorf("serve CRDs: %w", err)
	}
	installOpenAPI(server, &config)
	parts := customResources{
		server: server, config: &config, delegate: delegate.UnprotectedHandler(), definitions: crds, staticSpec: staticSpec,
		options: apiextensionsoptions.NewCRDRESTOptionsGetter(etcd, config.ResourceTransformers, config.StorageObjectCountTracker),
	}
	objects, err := c.serveCustomResources(parts)
	if err != nil {
		return nil, nil, nil, fmt.Errorf("serve custom resources: %w", err)
	}
	return server, crds, objects, nil
}

// installDefinitions serves CRDs. It returns their informer, and the schemas of the group.
func installDefinitions(server *genericapiserver.GenericAPIServer, options generic.RESTOptionsGetter) (*crd.Informer, map[string]*spec.Schema, error) {
	crds, err := customresourcedefinition.NewREST(apiextensionsapiserver.Scheme, options)
	if err != nil {
		return nil, nil, err
	}
	crd.Limit(crds.Store)
	packed, err := routing.Packed(crds.Storage.Storage)
	if err != nil {
		return nil, nil, err
	}
	group := genericapiserver.NewDefaultAPIGroupInfo(
		apiextensionsv1.GroupName, apiextensionsapiserver.Scheme, metav1.ParameterCodec, apiextensionsapiserver.Codecs)
	group.VersionedResourcesStorageMap[apiextensionsv1.SchemeGroupVersion.Version] = map[string]rest.Storage{
		"customresourcedefinitions":        crds,
		"customresourcedefinitions/status": customresourcedefinition.NewStatusREST(apiextensionsapiserver.Scheme, crds),
	}
	if err := server.InstallAPIGroup(&group); err != nil {
		return nil, nil, err
	}
	return crd.NewInformer(packed, crds.KeyRootFunc(context.Background())), group.StaticOpenAPISpec, nil
}

// upstreamServer is a server of the chain that upstream builds.
type upstreamServer struct {
	// stored is the version of its objects in etcd.
	stored    schema.GroupVersion
	codecs    serializer.CodecFactory
	scheme    *runtime.Scheme
	resources *serverstorage.ResourceConfig
}

// forDelegate returns copies of the generic configuration and the configuration of etcd for one
// of the outer or inner servers. Hooks belong to one server only and would be rejected as
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
