// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package apiserver wires the chain of API servers that annex is made of:
// aggregator, core, extensions, not found. chain.go has the order; each server
// has a file of its own.
package apiserver

import (
	"context"
	"fmt"
	"net/http"
	"time"

	crdinformers "k8s.io/apiextensions-apiserver/pkg/client/informers/externalversions/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	genericapiserver "k8s.io/apiserver/pkg/server"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	serverstorage "k8s.io/apiserver/pkg/server/storage"
	"k8s.io/apiserver/pkg/util/webhook"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/informers"

	"github.com/annex-dev/annex/pkg/apis/hosting"
	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/apiserver/requestbody"
	"github.com/annex-dev/annex/pkg/apiserver/scheme"
	annexclient "github.com/annex-dev/annex/pkg/generated/clientset/versioned"
	annexinformers "github.com/annex-dev/annex/pkg/generated/informers/externalversions"
	"github.com/annex-dev/annex/pkg/standalone/serviceaccount"
	"github.com/annex-dev/annex/pkg/storage/routing"
	"github.com/annex-dev/annex/pkg/version"
)

// Config is what the chain is built from.
type Config struct {
	// Generic is applied in full: serving, authentication, authorization,
	// admission, audit. The servers of the chain share it through copies, so
	// that their life cycle signals are the same.
	Generic *genericapiserver.Config
	Extra   ExtraConfig
}

// ExtraConfig is what upstream's generic configuration has no place for.
type ExtraConfig struct {
	// Etcd names the etcd that objects are kept in. Its codec and tracing are
	// set for each server.
	Etcd genericoptions.EtcdOptions
	// EtcdShared says that other replicas may serve from the same etcd.
	EtcdShared bool
	// APIEnablement says which of the versions are served.
	APIEnablement *genericoptions.APIEnablementOptions
	// Groups are the compiled-in groups that the core server serves.
	Groups []Group
	// Informers watch the cluster that serves the Kubernetes kinds, annex itself or the
	// main cluster. The chain starts them.
	Informers informers.SharedInformerFactory
	// Resources discovers what that cluster serves.
	Resources discovery.ServerResourcesInterfaceWithContext
	// ServiceResolver resolves the Services of conversion and admission webhooks.
	ServiceResolver webhook.ServiceResolver
	// WebhookCredentials authenticate to these webhooks.
	WebhookCredentials webhook.AuthenticationInfoResolverWrapper
	// BodyLimits bound request bodies.
	BodyLimits requestbody.BodyLimits
	// WrapAll wraps the whole chain of HTTP handlers; nil adds nothing.
	WrapAll func(http.Handler, runtime.NegotiatedSerializer) http.Handler
	// WrapAPIs wraps the aggregator inside upstream's filters, where the user is known;
	// nil adds nothing.
	WrapAPIs func(http.Handler, crdinformers.CustomResourceDefinitionInformer) http.Handler
	// PostStartHooks are further hooks, by their names.
	PostStartHooks map[string]genericapiserver.PostStartHookFunc
	// StorageLayers configures the layers of the storage stack. The caller runs what they need.
	StorageLayers routing.Layers
	// EventTTL is how long events are kept.
	EventTTL time.Duration
	// Tokens says which tokens service accounts get.
	Tokens serviceaccount.TokenConfig
	// Discovery publishes the keys that verify these tokens; nil if annex issues none.
	Discovery *serviceaccount.Discovery
	// Store finds the etcd that has a name among Stores.
	Store func(name string) (routing.Store, error)
	// AnnexHosting is a client of annex's own kinds, and HostingInformers watch them.
	// The chain starts these.
	AnnexHosting     annexclient.Interface
	HostingInformers annexinformers.SharedInformerFactory
	// Runnables keep current what requests are decided by, such as files and keys of
	// issuers. Each runs from before the chain serves until it has drained.
	Runnables []func(context.Context)
}

// servers is what upstream asks for as the number of API servers on one etcd. With
// more than one it waits for five seconds between accepting a CRD and Established, so
// that all of them serve its resource by then. It makes no difference how many there are.
func (e *ExtraConfig) servers() int {
	if e.EtcdShared {
		return 2
	}
	return 1
}

type completedConfig struct {
	generic        *genericapiserver.Config
	extra          *ExtraConfig
	storageFactory *serverstorage.DefaultStorageFactory
	router         *routing.Router
}

// CompletedConfig can be built from. Only Complete makes one.
type CompletedConfig struct {
	*completedConfig
}

// Complete settles which versions are served and how they are stored.
func (c *Config) Complete() (CompletedConfig, error) {
	if err := version.AssertEmulated(c.Generic.EffectiveVersion); err != nil {
		return CompletedConfig{}, err
	}
	if err := c.Extra.APIEnablement.ApplyTo(c.Generic, resourceConfig(c.Extra.Groups), scheme.Scheme); err != nil {
		return CompletedConfig{}, fmt.Errorf("--runtime-config: %w", err)
	}
	for _, group := range c.Extra.Groups {
		if group.required && !c.Generic.MergedResourceConfig.AnyResourceForGroupEnabled(group.version.Group) {
			return CompletedConfig{}, fmt.Errorf("--runtime-config: %s cannot be disabled, annex itself needs it", group.version)
		}
	}
	c.Extra.Etcd.StorageConfig.Transport.TracerProvider = c.Generic.TracerProvider
	factory := newStorageFactory(c.Generic, c.Extra.Etcd)
	if err := c.Extra.Etcd.ApplyWithStorageFactoryTo(factory, c.Generic); err != nil {
		return CompletedConfig{}, fmt.Errorf("configure storage: %w", err)
	}
	c.limitBodies()
	router, err := newRouter(&c.Extra)
	if err != nil {
		return CompletedConfig{}, err
	}
	c.Generic.RESTOptionsGetter = router.Pinned(c.Generic.RESTOptionsGetter)
	c.Generic.AdmissionControl = router.WithDryRunLimits(c.Generic.AdmissionControl)
	return CompletedConfig{&completedConfig{generic: c.Generic, extra: &c.Extra, storageFactory: factory, router: router}}, nil
}

// newStorageFactory says how the core server's kinds are stored: protobuf
// where the kind has it, in the version that the scheme prefers.
func newStorageFactory(generic *genericapiserver.Config, etcd genericoptions.EtcdOptions) *serverstorage.DefaultStorageFactory {
	// Without the tracker flow control cannot tell what a list costs.
	etcd.StorageConfig.StorageObjectCountTracker = generic.StorageObjectCountTracker
	factory := serverstorage.NewDefaultStorageFactory(
		etcd.StorageConfig,
		etcd.DefaultStorageMediaType,
		scheme.Codecs,
		serverstorage.NewDefaultResourceEncodingConfigForEffectiveVersion(scheme.Scheme, generic.EffectiveVersion),
		generic.MergedResourceConfig,
		resourcePrefixes(),
	)
	// annex's own kinds have no protobuf encoding.
	factory.SetSerializer(schema.GroupResource{Group: hosting.GroupName, Resource: serverstorage.AllResources}, runtime.ContentTypeJSON, nil)
	return factory
}

// resourcePrefixes puts annex's own kinds under their group, as custom
// resources are. Kubernetes' kinds keep the plain names that upstream gives
// them; a group of custom resources always has a dot, so they cannot meet.
func resourcePrefixes() map[schema.GroupResource]string {
	prefixes := map[schema.GroupResource]string{}
	// Some of these types are no resources; upstream never asks for their prefix.
	for kind := range scheme.Scheme.KnownTypes(hostingv1alpha1.SchemeGroupVersion) {
		plural, _ := meta.UnsafeGuessKindToResource(hostingv1alpha1.SchemeGroupVersion.WithKind(kind))
		prefixes[plural.GroupResource()] = plural.Group + "/" + plural.Resource
	}
	return prefixes
}
