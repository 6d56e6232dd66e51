// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package apiserver wires annex's chain of API servers: aggregator, core, extensions,
// not found. chain.go has their order, handlers.go the HTTP handlers in front of them,
// and groups.go the compiled-in groups; each server has a file of its own.
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

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/apis/scheme"
	"github.com/annex-dev/annex/pkg/apiserver/requestbody"
	annexclient "github.com/annex-dev/annex/pkg/generated/clientset/versioned"
	annexinformers "github.com/annex-dev/annex/pkg/generated/informers/externalversions"
	"github.com/annex-dev/annex/pkg/standalone/serviceaccount"
	"github.com/annex-dev/annex/pkg/storage/routing"
	"github.com/annex-dev/annex/pkg/version"
)

// Config configures the chain.
type Config struct {
	// Generic is applied in full: serving, authentication, authorization,
	// admission, audit. The servers of the chain share it through copies, so
	// that their life cycle signals are the same.
	Generic *genericapiserver.Config
	Extra   ExtraConfig
}

// ExtraConfig holds what upstream's generic configuration has no field for.
type ExtraConfig struct {
	// Etcd configures the etcd of the Store default. Its codec and tracing are set for
	// each server.
	Etcd genericoptions.EtcdOptions
	// EtcdShared reports that other replicas may use the same etcd.
	EtcdShared bool
	// APIEnablement selects the versions that are served.
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
	// AllMetricBuckets serves the buckets of all histograms.
	AllMetricBuckets bool
	// PostStartHooks are further hooks, by their names.
	PostStartHooks map[string]genericapiserver.PostStartHookFunc
	// StorageLayers configures the layers of the storage stack. The caller runs their
	// background work.
	StorageLayers routing.Layers
	// EventTTL is the time after the last write until an event expires.
	EventTTL time.Duration
	// Tokens configures the tokens of service accounts.
	Tokens serviceaccount.TokenConfig
	// Discovery publishes the keys that verify these tokens; nil if annex issues none.
	Discovery *serviceaccount.Discovery
	// Store returns the connection to a Store by its name.
	Store func(name string) (routing.Store, error)
	// AnnexHosting is a client of annex's own kinds, and HostingInformers watch them.
	// The chain starts these.
	AnnexHosting     annexclient.Interface
	HostingInformers annexinformers.SharedInformerFactory
	// SetDefinitions gives the admission plugins the CRDs, without and with schemas, before the
	// chain serves; nil if none needs them.
	SetDefinitions func(outlines, whole crdinformers.CustomResourceDefinitionInformer)
	// Runnables reload the inputs of authentication and authorization, such as files and keys
	// of issuers. Each runs from before the chain serves until it has drained.
	Runnables []func(context.Context)
}

// servers is the number of API servers on one etcd, for upstream. With more than one,
// upstream waits five seconds between accepting a CRD and Established, so that all of
// them serve the resource by then. Any number above one is equal.
func (e *ExtraConfig) servers() int {
	if e.EtcdShared {
		return 2
	}
	return 1
}

type completedConfig struct {
	generic *genericapiserver.Config
	extra   *ExtraConfig
	router  *routing.Router
}

// CompletedConfig builds the chain. Only Complete creates one.
type CompletedConfig struct {
	*completedConfig
}

// Complete determines which versions are served and how they are stored.
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
	c.growStacks()
	router, err := newRouter(&c.Extra)
	if err != nil {
		return CompletedConfig{}, err
	}
	c.Generic.RESTOptionsGetter = router.Pinned(c.Generic.RESTOptionsGetter)
	c.Generic.AdmissionControl = router.WithDryRunLimits(c.Generic.AdmissionControl)
	return CompletedConfig{&completedConfig{generic: c.Generic, extra: &c.Extra, router: router}}, nil
}

// newStorageFactory configures how the kinds of the core server are stored: as protobuf by
// default, in the version that the scheme prefers. Other encodings can be read.
func newStorageFactory(generic *genericapiserver.Config, etcd genericoptions.EtcdOptions) *serverstorage.DefaultStorageFactory {
	// Flow control estimates the cost of a list with the tracker.
	etcd.StorageConfig.StorageObjectCountTracker = generic.StorageObjectCountTracker
	return serverstorage.NewDefaultStorageFactory(
		etcd.StorageConfig,
		etcd.DefaultStorageMediaType,
		scheme.Codecs,
		serverstorage.NewDefaultResourceEncodingConfigForEffectiveVersion(scheme.Scheme, generic.EffectiveVersion),
		generic.MergedResourceConfig,
		resourcePrefixes(),
	)
}

// resourcePrefixes stores annex's own kinds under their group, as custom resources are.
// Kubernetes' kinds keep upstream's plain names; a group of custom resources always
// contains a dot, so they cannot collide.
func resourcePrefixes() map[schema.GroupResource]string {
	prefixes := map[schema.GroupResource]string{}
	// Some of these types are not resources; upstream never requests their prefix.
	for kind := range scheme.Scheme.KnownTypes(hostingv1alpha1.SchemeGroupVersion) {
		plural, _ := meta.UnsafeGuessKindToResource(hostingv1alpha1.SchemeGroupVersion.WithKind(kind))
		prefixes[plural.GroupResource()] = plural.Group + "/" + plural.Resource
	}
	return prefixes
}
