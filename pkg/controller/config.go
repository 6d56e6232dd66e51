// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"time"

	apiextensionsclient "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	apiextensionsinformers "k8s.io/apiextensions-apiserver/pkg/client/informers/externalversions"
	definitioninformers "k8s.io/apiextensions-apiserver/pkg/client/informers/externalversions/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/informers"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	aggregatorclient "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset"
	aggregatorinformers "k8s.io/kube-aggregator/pkg/client/informers/externalversions"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/controller/framework/metadatainformers"
	annexclient "github.com/annex-dev/annex/pkg/generated/clientset/versioned"
	annexscheme "github.com/annex-dev/annex/pkg/generated/clientset/versioned/scheme"
	hostinginformers "github.com/annex-dev/annex/pkg/generated/informers/externalversions/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/storage/corruption"
	"github.com/annex-dev/annex/pkg/storage/stores"
	"github.com/annex-dev/annex/pkg/storage/usage"
)

// UsageTracker knows how much there is of each resource. A *usage.Aggregator is one.
type UsageTracker interface {
	// AddHandler has changes reported to a handler until remove is called.
	AddHandler(handler usage.Handler) (remove func())
	// AddStoreHandler has them reported to one that asks in which Store.
	AddStoreHandler(handler usage.StoreHandler) (remove func())
	// Usage is the usage of one resource.
	Usage(resource schema.GroupResource) usage.Usage
	// Namespaces is the usage of one resource in every namespace that has some of it.
	Namespaces(resource schema.GroupResource) map[string]usage.Usage
	// In is the usage of one resource in one Store, and false while that is not known.
	In(store string, resource schema.GroupResource) (usage usage.Usage, known bool)
	// Store is the usage of all resources in one Store, and false while it is not known.
	Store(store string) (total usage.Usage, known bool)
}

// Stores has the connections to Stores. A *stores.Pool is one.
type Stores interface {
	// Get is that to one Store.
	Get(name string) (*stores.Store, error)
	// AddListener has changes reported until remove is called.
	AddListener(listener func(store string)) (remove func())
}

// informerResync is how often the informers of a term hand out again what they
// have, so that a controller gets over a change that it lost.
const informerResync = 10 * time.Minute

// Config holds what the controllers depend on: annex's own clients and informers,
// the etcd behind them, and the cluster that annex stands behind, if any.
//
// Some of it lives for one term only, that is from New to the end of Run: New
// makes those informers, and what controllers register with the others is taken
// back.
type Config struct {
	AnnexKube          kubernetes.Interface
	AnnexAPIExtensions apiextensionsclient.Interface
	AnnexHosting       annexclient.Interface
	AnnexMetadata      metadata.Interface

	// These belong to the server, which starts them. There are no namespaces behind a
	// main cluster.
	AnnexHostedResourceInformer hostinginformers.HostedResourceInformer
	AnnexStoreInformer          hostinginformers.StoreInformer
	AnnexDefinitionInformer     definitioninformers.CustomResourceDefinitionInformer
	AnnexNamespaceInformer      coreinformers.NamespaceInformer
	// AnnexInformers watch the Kubernetes kinds where annex serves them. They belong
	// to the server too, which starts those that RequestInformers asked for.
	AnnexInformers informers.SharedInformerFactory

	// AnnexMetadataInformers follow all objects that annex serves. They are the
	// term's: New makes them where annex stands alone, and they run if a controller
	// gives them a handler.
	AnnexMetadataInformers *metadatainformers.Informers

	// RootCA is what clients verify annex with where it stands alone; nil if it was not
	// told.
	RootCA CABundleSource

	// Main is the cluster that annex stands behind, nil when it stands alone.
	Main *MainCluster

	// Usage tracks the objects in all Stores.
	Usage UsageTracker
	// Unreadable knows which objects cannot be read.
	Unreadable *corruption.Registry
	// Stores has the connections to Stores.
	Stores Stores
	// DefaultStore is the spec of the Store "default", when that has to be made.
	DefaultStore hostingv1alpha1.StoreSpec

	// CollectGarbage has objects deleted whose owners are gone, where annex stands
	// alone. The server sets finalizers for that, or does not.
	CollectGarbage bool

	// NamespaceSettlePeriod replaces namespace.DefaultSettlePeriod when positive.
	NamespaceSettlePeriod time.Duration

	// term is the one that this is the Config of, nil before New.
	term *term
	// events takes what controllers have to say in the term, to the cluster that
	// people ask: annex itself, or the main cluster.
	events events.EventBroadcaster
}

// RequestInformers asks the server's informers for all that controllers watch
// through them, before they are started.
func (c Config) RequestInformers() {
	c.AnnexHostedResourceInformer.Informer()
	c.AnnexStoreInformer.Informer()
	c.AnnexDefinitionInformer.Informer()
	if c.AnnexNamespaceInformer != nil {
		c.AnnexNamespaceInformer.Informer()
	}
	if c.AnnexInformers != nil {
		c.AnnexInformers.Admissionregistration().V1().ValidatingAdmissionPolicies().Informer()
		c.AnnexInformers.Core().V1().ServiceAccounts().Informer()
		c.AnnexInformers.Core().V1().Secrets().Informer()
		c.AnnexInformers.Flowcontrol().V1().FlowSchemas().Informer()
		c.AnnexInformers.Flowcontrol().V1().PriorityLevelConfigurations().Informer()
		c.AnnexInformers.Rbac().V1().ClusterRoles().Informer()
		c.AnnexInformers.Core().V1().ResourceQuotas().Informer()
	}
}

// recorder records events in the name of a controller.
func (c Config) recorder(name string) events.EventRecorder {
	return c.events.NewRecorder(annexscheme.Scheme, name)
}

// inTerm has handlers that are added to one of the server's informers removed when
// the term ends.
func (c Config) inTerm(informer cache.SharedIndexInformer) cache.SharedIndexInformer {
	return termInformer{informer, c.term}
}

// MainCluster is what controllers need of the cluster that annex stands behind.
type MainCluster struct {
	Kube            kubernetes.Interface
	Dynamic         dynamic.Interface
	APIExtensions   apiextensionsclient.Interface
	APIRegistration aggregatorclient.Interface

	// AnsweredBy asks for a group version through the main cluster, and returns
	// who says in hosting's PublishedByHeader to have answered.
	AnsweredBy func(ctx context.Context, version schema.GroupVersion) (string, error)

	// PublishService is the Service in the main cluster that leads to annex.
	PublishService Service
	// CABundle is what annex's serving certificates are verified with.
	CABundle CABundleSource

	// APIExtensionsInformers and APIRegistrationInformers are the term's: New
	// makes them.
	APIExtensionsInformers   apiextensionsinformers.SharedInformerFactory
	APIRegistrationInformers aggregatorinformers.SharedInformerFactory
}

// Service is a port of a Service.
type Service struct {
	Namespace, Name string
	Port            int32
}

// CABundleSource has the certificates, in PEM, that annex is verified with, and
// tells when they change.
type CABundleSource interface {
	CABundle() []byte
	AddListener(listener func())
}
