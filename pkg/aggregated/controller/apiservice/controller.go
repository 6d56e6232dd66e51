// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package apiservice has the main cluster send requests to annex: it keeps one
// APIService there for every group version that annex serves, and says on each
// HostedResource how that stands.
//
// The APIService of annex's own group comes first. Only when the main cluster
// finds it available, and the Store "default" read through the main cluster is
// the very one that annex has, do the others follow: an APIService that leads
// nowhere breaks discovery for everybody in the main cluster.
//
// What annex made carries its label and is put right whenever it is changed or
// deleted. What it did not make is reported and left alone, with one exception:
// the local APIService of a definition whose takeover is cleared. An APIService
// goes only when annex no longer serves its version, never because annex stops.
package apiservice

import (
	"context"
	"time"

	apiextensionsclient "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset/typed/apiextensions/v1"
	apiextensionsinformers "k8s.io/apiextensions-apiserver/pkg/client/informers/externalversions/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/tools/cache"
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
	// a break before groups are published that it has not known before.
	DefaultSettlePeriod = 5 * time.Second
)

// CABundleSource has the certificates, in PEM, that annex is verified with, and
// tells when they change.
type CABundleSource interface {
	CABundle() []byte
	AddListener(listener func())
}

// Config holds what the controller depends on.
type Config struct {
	MainAPIServices aggregatorclient.APIServiceInterface
	// ReadStoreThroughMain is what ReadStore returns.
	ReadStoreThroughMain func(ctx context.Context) (types.UID, error)
	// ServedBy asks for a group version through the main cluster, and returns
	// hosting's PublishedByHeader of the answer.
	ServedBy             func(ctx context.Context, version schema.GroupVersion) (string, error)
	AnnexDefinitions     apiextensionsclient.CustomResourceDefinitionInterface
	AnnexHostedResources hostingclient.HostedResourceInterface

	MainAPIServiceInformer  aggregatorinformers.APIServiceInformer
	MainDefinitionInformer  apiextensionsinformers.CustomResourceDefinitionInformer
	AnnexDefinitionInformer apiextensionsinformers.CustomResourceDefinitionInformer
	AnnexHostedInformer     hostinginformers.HostedResourceInformer
	AnnexStoreInformer      hostinginformers.StoreInformer

	// Service and CABundle are how the main cluster reaches annex.
	Service  Service
	CABundle CABundleSource

	// SettlePeriod replaces DefaultSettlePeriod when positive.
	SettlePeriod time.Duration
	// Now replaces time.Now when it is not nil.
	Now func() time.Time
}

// Controller keeps annex's APIServices in the main cluster.
type Controller struct {
	// queue holds groups.
	queue   *framework.Queue[string]
	listers listers
	synced  []cache.DoneChecker
}

// New returns a controller that follows the informers of config and does nothing
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
	c.queue = framework.NewQueue(framework.QueueConfig[string]{Name: ControllerName, Reconcile: r.reconcile})
	if err := c.addEventHandlers(config); err != nil {
		return nil, err
	}
	config.CABundle.AddListener(func() {
		c.queue.Add(hostingVersion.Group)
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
		listAnnexDefinitions: listDefinitions(config.AnnexDefinitions),
		listAnnexHosted:      listHosted(config.AnnexHostedResources),
		readStoreThroughMain: config.ReadStoreThroughMain,
		servedBy:             config.ServedBy,
		create: func(ctx context.Context, wanted *apiService) error {
			_, err := config.MainAPIServices.Create(ctx, wanted, metav1.CreateOptions{FieldManager: fieldManager})
			return err
		},
		update: func(ctx context.Context, wanted *apiService) error {
			_, err := config.MainAPIServices.Update(ctx, wanted, metav1.UpdateOptions{FieldManager: fieldManager})
			return err
		},
		delete: config.MainAPIServices.Delete,
		writeCondition: conditions.Writer{
			Type: hostingv1alpha1.HostedResourcePublished, FieldManager: fieldManager, AnnexHostedResources: config.AnnexHostedResources,
		}.Write,
		allGroups: c.enqueueAll,
		gate:      newGate(config.SettlePeriod),
		rechecks:  rechecks{last: map[schema.GroupVersion]recheck{}},
		routed:    routedVersions{seen: map[schema.GroupVersion]bool{}},
		writes:    framework.NewThrottle(writeInterval, config.Now),
		messages:  framework.NewThrottle(messageInterval, config.Now),
		now:       config.Now,
		announced: map[schema.GroupVersion]string{},
	}
}

// listDefinitions asks annex for all its definitions.
func listDefinitions(annexDefinitions apiextensionsclient.CustomResourceDefinitionInterface) func(ctx context.Context) ([]*definition, error) {
	return func(ctx context.Context) ([]*definition, error) {
		list, err := annexDefinitions.List(ctx, metav1.ListOptions{})
		if err != nil {
			return nil, err
		}
		definitions := make([]*definition, 0, len(list.Items))
		for i := range list.Items {
			definitions = append(definitions, &list.Items[i])
		}
		return definitions, nil
	}
}

// listHosted asks annex for all its HostedResources.
func listHosted(annexHostedResources hostingclient.HostedResourceInterface) func(ctx context.Context) ([]*hosted, error) {
	return func(ctx context.Context) ([]*hosted, error) {
		list, err := annexHostedResources.List(ctx, metav1.ListOptions{})
		if err != nil {
			return nil, err
		}
		resources := make([]*hosted, 0, len(list.Items))
		for i := range list.Items {
			resources = append(resources, &list.Items[i])
		}
		return resources, nil
	}
}

// addEventHandlers has every change that may matter queue the group it matters to.
func (c *Controller) addEventHandlers(config Config) error {
	all := cache.ResourceEventHandlerFuncs{
		AddFunc:    c.enqueue,
		UpdateFunc: func(_, obj any) { c.enqueue(obj) },
		DeleteFunc: c.enqueue,
	}
	// Numbers in a status change with every write to the resource.
	hostedChanges := cache.ResourceEventHandlerFuncs{
		AddFunc: c.enqueue,
		UpdateFunc: func(before, after any) {
			if !isUnchanged(before, after) {
				c.enqueue(after)
			}
		},
	}
	// A Store matters once, for its UID.
	stores := cache.ResourceEventHandlerFuncs{AddFunc: c.enqueue, DeleteFunc: c.enqueue}
	var err error
	c.synced, err = framework.AddEventHandlers(
		framework.Source{Name: "APIServices of the main cluster", Informer: config.MainAPIServiceInformer.Informer(), Handler: all},
		framework.Source{Name: "custom resource definitions of the main cluster", Informer: config.MainDefinitionInformer.Informer(), Handler: all},
		framework.Source{Name: "custom resource definitions", Informer: config.AnnexDefinitionInformer.Informer(), Handler: all},
		framework.Source{Name: "hosted resources", Informer: config.AnnexHostedInformer.Informer(), Handler: hostedChanges},
		framework.Source{Name: "stores", Informer: config.AnnexStoreInformer.Informer(), Handler: stores},
	)
	return err
}

// Run keeps APIServices until ctx is done. What is published then stays so.
func (c *Controller) Run(ctx context.Context, workers int) {
	registerMetrics()
	// Another replica tells from now on.
	defer published.Reset()
	c.queue.Add(hostingVersion.Group)
	c.queue.Run(ctx, workers, c.synced...)
}

// enqueue queues the group of an object.
func (c *Controller) enqueue(obj any) {
	if tombstone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = tombstone.Obj
	}
	switch object := obj.(type) {
	case *apiService:
		c.queue.Add(object.Spec.Group)
	case *definition:
		c.queue.Add(object.Spec.Group)
	case *hosted:
		c.queue.Add(schema.ParseGroupResource(object.Name).Group)
	case *hostingv1alpha1.Store:
		c.queue.Add(hostingVersion.Group)
	}
}

// enqueueAll queues every group that annex may have to do with.
func (c *Controller) enqueueAll() {
	groups, err := c.listers.groups()
	if err != nil {
		utilruntime.HandleErrorWithContext(context.Background(), err, "Listing groups failed", "controller", ControllerName)
		return
	}
	for _, group := range groups {
		c.queue.Add(group)
	}
}

// isUnchanged reports whether two states of a HostedResource are the same to this
// controller.
func isUnchanged(before, after any) bool {
	a, aOK := before.(*hosted)
	b, bOK := after.(*hosted)
	return aOK && bOK && a.ResourceVersion != b.ResourceVersion && a.Generation == b.Generation && a.UID == b.UID &&
		ptr.Equal(a.Status.Takeover, b.Status.Takeover) &&
		equality.Semantic.DeepEqual(
			meta.FindStatusCondition(a.Status.Conditions, hostingv1alpha1.HostedResourcePublished),
			meta.FindStatusCondition(b.Status.Conditions, hostingv1alpha1.HostedResourcePublished))
}
