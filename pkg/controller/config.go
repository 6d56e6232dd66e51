// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"time"

	apiextensionsclient "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	definitioninformers "k8s.io/apiextensions-apiserver/pkg/client/informers/externalversions/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	eventsclient "k8s.io/client-go/kubernetes/typed/events/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/controller/migration"
	"github.com/annex-dev/annex/pkg/controller/retention"
	annexclient "github.com/annex-dev/annex/pkg/generated/clientset/versioned"
	annexscheme "github.com/annex-dev/annex/pkg/generated/clientset/versioned/scheme"
	hostinginformers "github.com/annex-dev/annex/pkg/generated/informers/externalversions/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/staticobjects"
	"github.com/annex-dev/annex/pkg/storage/etcd/stores"
	"github.com/annex-dev/annex/pkg/storage/etcd/usage"
	"github.com/annex-dev/annex/pkg/storage/layer/corruption"
	"github.com/annex-dev/annex/pkg/storage/move"
	"github.com/annex-dev/annex/pkg/storage/watchcache"
)

// UsageTracker counts the objects of each resource. A *usage.Aggregator is one.
type UsageTracker interface {
	// AddHandler adds a handler that is called for each change until remove is called.
	AddHandler(handler usage.Handler) (remove func())
	// AddStoreHandler adds one that also receives the Store.
	AddStoreHandler(handler usage.StoreHandler) (remove func())
	// Usage is the usage of one resource.
	Usage(resource schema.GroupResource) usage.Usage
	// Namespaces is the usage of one resource in one Store, in every namespace that has some of
	// it.
	Namespaces(store string, resource schema.GroupResource) map[string]usage.Usage
	// In is the usage of one resource in one Store, and false while that is unknown.
	In(store string, resource schema.GroupResource) (usage usage.Usage, known bool)
	// Store is the usage of all resources in one Store, and false while it is not known.
	Store(store string) (total usage.Usage, known bool)
}

// Stores has the connections to Stores. A *stores.Pool is one.
type Stores interface {
	// Get returns the connection to one Store.
	Get(name string) (*stores.Store, error)
	// AddListener adds a function that is called for each change until remove is called.
	AddListener(listener func(store string)) (remove func())
}

// InformerResync is the interval at which the informers of a leadership deliver all objects again, so that a
// controller recovers from a lost change.
const InformerResync = 10 * time.Minute

// Config holds what the controllers depend on: annex's own clients and informers,
// and the etcd behind them.
type Config struct {
	AnnexKube          kubernetes.Interface
	AnnexAPIExtensions apiextensionsclient.Interface
	AnnexHosting       annexclient.Interface
	AnnexMetadata      metadata.Interface
	AnnexDynamic       dynamic.Interface
	// AnnexLogin is the login of these clients.
	AnnexLogin *rest.Config

	// These informers belong to the server, which starts them.
	AnnexHostedResourceInformer   hostinginformers.HostedResourceInformer
	AnnexStoreInformer            hostinginformers.StoreInformer
	AnnexMigrationInformer        hostinginformers.MigrationInformer
	AnnexInjectionProfileInformer hostinginformers.InjectionProfileInformer
	AnnexStaticSourceInformer     hostinginformers.StaticSourceInformer
	AnnexDefinitionInformer       definitioninformers.CustomResourceDefinitionInformer
	// AnnexWholeDefinitions gets the same definitions with their schemas.
	AnnexWholeDefinitions definitioninformers.CustomResourceDefinitionInformer

	// Mode adds the controllers of one of annex's two modes.
	Mode Mode

	// Usage tracks the objects in all Stores.
	Usage UsageTracker
	// Unreadable records the objects that cannot be read.
	Unreadable *corruption.Registry
	// Caches has the watch caches of custom resources.
	Caches *watchcache.Budget
	// Stores holds the connections to Stores.
	Stores Stores
	// NewMover returns what moves a resource between two Stores.
	NewMover migration.NewMoverFunc
	// NewImporter returns what moves a resource from the main cluster into a Store.
	NewImporter func(to string, config move.Config) (*move.Importer, error)
	// NewExporter returns what moves a resource from a Store to the main cluster.
	NewExporter func(from string, config move.Config) (*move.Exporter, error)
	// Archive keeps objects that retentions delete; nil without --archive-dir.
	Archive retention.Archive
	// StaticSources are the sources of static objects of this replica.
	StaticSources *staticobjects.Sources
	// StaticSettled is called once their objects are applied, or cannot be.
	StaticSettled func()
	// DefaultStore is the spec that the Store "default" is created with.
	DefaultStore hostingv1alpha1.StoreSpec

	// events records events in the cluster that users inspect: annex itself, or the
	// main cluster. It exists for one leadership.
	events events.EventBroadcaster
}

// Mode is everything about controllers that differs between annex's two modes, in
// pkg/standalone and pkg/aggregated.
type Mode interface {
	// Table lists the controllers that only this mode has.
	Table() []Descriptor
	// RequestInformers requests the informers of Table from the server's factories.
	RequestInformers()
	// Events is a client of the cluster that events are recorded in.
	Events(Config) eventsclient.EventsV1Interface
	// GroupRuns returns what runs Migrations of groups, nil without a main cluster.
	GroupRuns(Config) (migration.NewGroupRunFunc, error)
	// RefusedStatic has the kinds that cannot be static objects, and why.
	RefusedStatic() map[schema.GroupKind]string
	// SystemObjects are the objects that are created in this mode only.
	SystemObjects(Config) []SystemObject
	// ForLeadership returns the mode for one leadership, at whose end ctx is done.
	ForLeadership(ctx context.Context, config Config) (Mode, error)
	// RunInformers runs the informers of the leadership until ctx is done.
	RunInformers(ctx context.Context)
}

// RequestInformers requests from the server's factories the informers that controllers
// use. It is called before the factories are started.
func (c Config) RequestInformers() {
	c.AnnexHostedResourceInformer.Informer()
	c.AnnexStoreInformer.Informer()
	c.AnnexMigrationInformer.Informer()
	c.AnnexInjectionProfileInformer.Informer()
	c.AnnexStaticSourceInformer.Informer()
	c.AnnexDefinitionInformer.Informer()
	c.Mode.RequestInformers()
}

// recorder records events of a controller.
func (c Config) recorder(name string) events.EventRecorder {
	return c.events.NewRecorder(annexscheme.Scheme, name)
}
