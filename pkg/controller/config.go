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
	"github.com/annex-dev/annex/pkg/controller/bootstrap"
	"github.com/annex-dev/annex/pkg/controller/migration"
	"github.com/annex-dev/annex/pkg/controller/retention"
	annexclient "github.com/annex-dev/annex/pkg/generated/clientset/versioned"
	annexscheme "github.com/annex-dev/annex/pkg/generated/clientset/versioned/scheme"
	hostinginformers "github.com/annex-dev/annex/pkg/generated/informers/externalversions/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/standalone/controller/namespace"
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
	// Get is that to one Store.
	Get(name string) (*stores.Store, error)
	// AddListener adds a function that is called for each change until remove is called.
	AddListener(listener func(store string)) (remove func())
}

// informerResync is how often the informers of a leadership deliver all objects again,
// so that a controller recovers from a lost change.
const informerResync = 10 * time.Minute

// StoredObjects are the objects of a custom resource in a namespace.
type StoredObjects = namespace.Contents

// Config holds what the controllers depend on: annex's own clients and informers,
// and the etcd behind them.
//
// Some of it exists for one leadership only, from New to the end of Run: New creates
// those informers, and the handlers that controllers add to the others are removed.
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
	NewImporter func(to string, config move.ImportConfig) (*move.Importer, error)
	// NewExporter returns what moves a resource from a Store to the main cluster.
	NewExporter func(from string, config move.ExportConfig) (*move.Exporter, error)
	// StoredObjects returns the objects of a custom resource in a namespace, also if no version is
	// served.
	StoredObjects namespace.StoredObjectsFunc
	// Archive keeps objects that retentions delete; nil without --archive-dir.
	Archive retention.Archive
	// StaticSources are what this replica reads static objects from.
	StaticSources *staticobjects.Sources
	// StaticSettled is called once their objects are applied, or cannot be.
	StaticSettled func()
	// DefaultStore is the spec that the Store "default" is created with.
	DefaultStore hostingv1alpha1.StoreSpec

	// events records events in the cluster that users inspect: annex itself, or the
	// main cluster. It exists for one leadership.
	events events.EventBroadcaster
}

// Mode is Standalone or Aggregated: everything about controllers that differs between
// the two.
type Mode interface {
	// controllers is the table of the mode's own controllers.
	controllers() []descriptor
	// requestInformers is RequestInformers for the mode's own.
	requestInformers()
	// events is a client of the cluster that events are recorded in.
	events(Config) eventsclient.EventsV1Interface
	// groupRuns returns what runs Migrations of groups, nil without a main cluster.
	groupRuns(Config) (migration.NewGroupRunFunc, error)
	// refusedStatic has the kinds that cannot be static objects, and why.
	refusedStatic() map[schema.GroupKind]string
	// bootstrap adds the objects that exist in this mode only.
	bootstrap(Config, *bootstrap.Config)
	// forLeadership returns the mode for one leadership.
	forLeadership(Config, *leadership) (Mode, error)
	// startInformers starts the informers of the leadership, and returns a function
	// that waits for them to stop after ctx is done.
	startInformers(ctx context.Context) (wait func())
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
	c.Mode.requestInformers()
}

// recorder records events of a controller.
func (c Config) recorder(name string) events.EventRecorder {
	return c.events.NewRecorder(annexscheme.Scheme, name)
}

// CABundleSource provides the certificates, in PEM, that verify annex's serving
// certificate.
type CABundleSource interface {
	CABundle() []byte
	// AddListener registers a function that is called after each change.
	AddListener(listener func())
}
