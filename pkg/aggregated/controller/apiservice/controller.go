// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package apiservice routes requests from the main cluster to annex: it keeps one
// APIService there for every group version that annex serves, and writes the condition
// Published of each HostedResource.
//
// The APIService of annex's own group comes first. The others follow once the main
// cluster finds it available, and the Store "default" read through the main cluster is
// the one of this annex: an APIService without a working backend breaks discovery for all
// clients of the main cluster.
//
// APIServices of annex carry its label and are restored when they are changed or deleted.
// Other APIServices are reported and not changed, except the local APIService of a
// definition whose takeover is cleared. An APIService is deleted only when annex no
// longer serves its version, never because annex stops.
package apiservice

import (
	"context"
	"time"

	apiextensionsclient "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset/typed/apiextensions/v1"
	apiextensionsinformers "k8s.io/apiextensions-apiserver/pkg/client/informers/externalversions/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	aggregatorclient "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset/typed/apiregistration/v1"
	aggregatorinformers "k8s.io/kube-aggregator/pkg/client/informers/externalversions/apiregistration/v1"
	"k8s.io/utils/ptr"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/controller/framework"
	"github.com/annex-dev/annex/pkg/controller/framework/conditions"
	hostingclient "github.com/annex-dev/annex/pkg/generated/clientset/versioned/typed/hosting/v1alpha1"
	hostinginformers "github.com/annex-dev/annex/pkg/generated/informers/externalversions/hosting/v1alpha1"
)

const (
	// ControllerName names the controller in logs and metrics.
	ControllerName = "apiservice"

	// fieldManager owns the condition Published.
	fieldManager = "annex-apiservice"

	// DefaultSettlePeriod is how long the main cluster has to reach annex without
	// interruption before new groups are published.
	DefaultSettlePeriod = 5 * time.Second
)

// CABundleSource has the PEM certificates that annex is verified with, and notifies of
// changes.
type CABundleSource interface {
	CABundle() []byte
	AddListener(listener func())
}

// Config holds what the controller depends on.
type Config struct {
	MainAPIServices      aggregatorclient.APIServiceInterface
	ReadStoreThroughMain func(ctx context.Context) (types.UID, error)
	// ServedBy requests a group version through the main cluster, and returns the
	// PublishedByHeader of the response.
	ServedBy             func(ctx context.Context, version schema.GroupVersion) (string, error)
	AnnexDefinitions     apiextensionsclient.CustomResourceDefinitionInterface
	AnnexHostedResources hostingclient.HostedResourceInterface

	MainAPIServiceInformer  aggregatorinformers.APIServiceInformer
	MainDefinitionInformer  apiextensionsinformers.CustomResourceDefinitionInformer
	AnnexDefinitionInformer apiextensionsinformers.CustomResourceDefinitionInformer
	AnnexHostedInformer     hostinginformers.HostedResourceInformer
	AnnexStoreInformer      hostinginformers.StoreInformer

	// Service and CABundle tell the main cluster how to reach annex.
	Service  Service
	CABundle CABundleSource

	// SettlePeriod replaces DefaultSettlePeriod when positive.
	SettlePeriod time.Duration
	// Now replaces time.Now when it is not nil.
	Now func() time.Time
}

// Controller keeps annex's APIServices in the main cluster.
type Controller struct {
	// The keys are API groups.
	*framework.Queue[string]
	listers listers
}

// New returns a controller that adds handlers to the informers of config. It does nothing
// before Run.
func New(config Config) (*Controller, error) {
	if config.SettlePeriod <= 0 {
		config.SettlePeriod = DefaultSettlePeriod
	}
	if config.Now == nil {
		config.Now = time.Now
	}
	c := &Controller{listers: newListers(config)}
	r := newReconciler(config, c)
	c.Queue = framework.NewQueue(framework.QueueConfig[string]{Name: ControllerName, Reconcile: r.reconcile})
	if err := c.addEventHandlers(config); err != nil {
		return nil, err
	}
	config.CABundle.AddListener(func() {
		c.Add(hostingVersion.Group)
		c.enqueueAll()
	})
	return c, nil
}

func newReconciler(config Config, c *Controller) *reconciler {
	return &reconciler{
		service:              config.Service,
		caBundle:             config.CABundle.CABundle,
		view:                 c.listers.view,
		getAPIService:        c.listers.mainAPIServices.Get,
		getStore:             config.AnnexStoreInformer.Lister().Get,
		annexDefinitions:     config.AnnexDefinitions,
		annexHostedResources: config.AnnexHostedResources,
		readStoreThroughMain: config.ReadStoreThroughMain,
		servedBy:             config.ServedBy,
		mainAPIServices:      config.MainAPIServices,
		writeCondition: conditions.Writer{
			Type: hostingv1alpha1.HostedResourcePublished, FieldManager: fieldManager, AnnexHostedResources: config.AnnexHostedResources,
		}.Write,
		allGroups: c.enqueueAll,
		gate:      newGate(config.SettlePeriod),
		reverts:   reverts{seen: map[schema.GroupVersion]revert{}},
		rechecks:  rechecks{last: map[schema.GroupVersion]recheck{}},
		routed:    routedVersions{seen: map[schema.GroupVersion]bool{}},
		writes:    framework.NewThrottle(writeInterval, config.Now),
		messages:  framework.NewThrottle(messageInterval, config.Now),
		now:       config.Now,
		announced: map[schema.GroupVersion]string{},
	}
}

func (c *Controller) addEventHandlers(config Config) error {
	apiServices := framework.Every(func(object *apiService) { c.Add(object.Spec.Group) })
	definitions := framework.Every(func(crd *definition) { c.Add(crd.Spec.Group) })
	// The usage in the status changes with every write to the resource.
	resources := framework.Handler[*hosted]{
		Added: c.enqueueHosted,
		Updated: func(before, after *hosted) {
			if !isUnchanged(before, after) {
				c.enqueueHosted(after)
			}
		},
	}
	// Only the UID of a Store matters.
	stores := framework.Every(func(*hostingv1alpha1.Store) { c.Add(hostingVersion.Group) })
	stores.Updated = nil
	return c.Watch(
		framework.Source{Name: "APIServices of the main cluster", Informer: config.MainAPIServiceInformer.Informer(), Handler: apiServices},
		framework.Source{Name: "custom resource definitions of the main cluster", Informer: config.MainDefinitionInformer.Informer(), Handler: definitions},
		framework.Source{Name: "custom resource definitions", Informer: config.AnnexDefinitionInformer.Informer(), Handler: definitions},
		framework.Source{Name: "hosted resources", Informer: config.AnnexHostedInformer.Informer(), Handler: resources},
		framework.Source{Name: "stores", Informer: config.AnnexStoreInformer.Informer(), Handler: stores},
	)
}

// Run keeps APIServices until ctx is done. They stay after that.
func (c *Controller) Run(ctx context.Context, workers int) {
	registerMetrics()
	// Another replica reports from now on.
	defer published.Reset()
	c.Add(hostingVersion.Group)
	c.Queue.Run(ctx, workers)
}

func (c *Controller) enqueueHosted(resource *hosted) {
	c.Add(schema.ParseGroupResource(resource.Name).Group)
}

// enqueueAll queues every group that annex serves or may have served.
func (c *Controller) enqueueAll() {
	groups, err := c.listers.groups()
	if err != nil {
		utilruntime.HandleErrorWithContext(context.Background(), err, "Listing groups failed", "controller", ControllerName)
		return
	}
	for _, group := range groups {
		c.Add(group)
	}
}

// isUnchanged reports whether an update of a HostedResource is irrelevant here.
func isUnchanged(before, after *hosted) bool {
	return before.ResourceVersion != after.ResourceVersion && before.Generation == after.Generation && before.UID == after.UID &&
		ptr.Equal(before.Status.Takeover, after.Status.Takeover) &&
		ptr.Equal(
			meta.FindStatusCondition(before.Status.Conditions, hostingv1alpha1.HostedResourcePublished),
			meta.FindStatusCondition(after.Status.Conditions, hostingv1alpha1.HostedResourcePublished))
}
