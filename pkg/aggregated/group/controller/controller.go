// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package controller performs the plans of pkg/aggregated/group.
//
// The APIService of annex's own group comes first. The others follow once the main cluster finds it available, and
// the Store "default" read through the main cluster is the one of this annex.
package controller

import (
	"context"
	"errors"
	"time"

	apiextensionsclient "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset/typed/apiextensions/v1"
	apiextensionsinformers "k8s.io/apiextensions-apiserver/pkg/client/informers/externalversions/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"
	apiregistrationclient "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset/typed/apiregistration/v1"
	apiregistrationinformers "k8s.io/kube-aggregator/pkg/client/informers/externalversions/apiregistration/v1"
	"k8s.io/utils/ptr"

	"github.com/annex-dev/annex/pkg/aggregated/group"
	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/controller/framework"
	hostingclient "github.com/annex-dev/annex/pkg/generated/clientset/versioned/typed/hosting/v1alpha1"
	hostinginformers "github.com/annex-dev/annex/pkg/generated/informers/externalversions/hosting/v1alpha1"
)

const (
	// ControllerName names the controller in logs and metrics.
	ControllerName = "group"

	// DefaultSettlePeriod is the time for which the main cluster has to reach annex without
	// interruption before new groups are published.
	DefaultSettlePeriod = 5 * time.Second
)

// hostingVersion is the group version whose APIService comes first.
var hostingVersion = hostingv1alpha1.SchemeGroupVersion

// Config holds what the controller depends on.
type Config struct {
	// MainObjects reads the objects of definitions in the main cluster, and annex's own through it.
	MainObjects            dynamic.Interface
	MainAPIServices        apiregistrationclient.APIServiceInterface
	MainDefinitions        apiextensionsclient.CustomResourceDefinitionInterface
	MainDefinitionInformer apiextensionsinformers.CustomResourceDefinitionInformer
	MainAPIServiceInformer apiregistrationinformers.APIServiceInformer
	// ServedBy requests a group version through the main cluster, and returns the PublishedByHeader of the response.
	ServedBy func(ctx context.Context, version schema.GroupVersion) (string, error)
	// Unfreeze removes the policy that freezes a group in the main cluster.
	Unfreeze func(ctx context.Context, group string) error

	AnnexObjects            metadata.Interface
	AnnexDefinitions        apiextensionsclient.CustomResourceDefinitionInterface
	AnnexHostedResources    hostingclient.HostedResourceInterface
	AnnexMigrations         hostingclient.MigrationInterface
	AnnexDefinitionInformer apiextensionsinformers.CustomResourceDefinitionInformer
	AnnexHostedInformer     hostinginformers.HostedResourceInformer
	AnnexStoreInformer      hostinginformers.StoreInformer
	AnnexMigrationInformer  hostinginformers.MigrationInformer

	// Service and CABundle are the address of annex for the main cluster.
	Service  group.Service
	CABundle framework.CABundleSource
}

// Controller brings groups to the state that they should have. Its keys are API groups.
type Controller struct {
	*framework.Queue[string]
	config Config
}

// New returns a controller that adds handlers to the informers of config. It does nothing before Run.
func New(config Config) (*Controller, error) {
	c := &Controller{config: config}
	c.Queue = framework.NewQueue(framework.QueueConfig[string]{Name: ControllerName, Reconcile: newReconciler(c).reconcile})
	if err := c.addEventHandlers(); err != nil {
		return nil, err
	}
	config.CABundle.AddListener(func() {
		c.Add(hostingVersion.Group)
		c.enqueueAll()
	})
	return c, nil
}

func (c *Controller) addEventHandlers() error {
	every := framework.Every(c.enqueue)
	// The usage in the status changes with every write to the resource.
	resources := framework.Every(func(resource *group.HostedResource) { c.enqueue(resource) })
	resources.Updated = func(before, after *group.HostedResource) {
		if !isUnchanged(before, after) {
			c.enqueue(after)
		}
	}
	// Only the UID of a Store matters.
	stores := framework.Every(func(*hostingv1alpha1.Store) { c.Add(hostingVersion.Group) })
	stores.Updated = nil
	return c.Watch(
		framework.Source{Name: "custom resource definitions of the main cluster", Informer: c.config.MainDefinitionInformer.Informer(), Handler: every},
		framework.Source{Name: "APIServices of the main cluster", Informer: c.config.MainAPIServiceInformer.Informer(), Handler: every},
		framework.Source{Name: "custom resource definitions", Informer: c.config.AnnexDefinitionInformer.Informer(), Handler: every},
		framework.Source{Name: "hosted resources", Informer: c.config.AnnexHostedInformer.Informer(), Handler: resources},
		framework.Source{Name: "stores", Informer: c.config.AnnexStoreInformer.Informer(), Handler: stores},
		framework.Source{Name: "migrations", Informer: c.config.AnnexMigrationInformer.Informer(), Handler: framework.Handler[*group.Migration]{
			Updated: func(before, after *group.Migration) {
				if after.Spec.Group != "" && group.IsRelevant(before, after) {
					c.Add(after.Spec.Group)
				}
			},
			Deleted: func(migration *group.Migration) {
				if migration.Spec.Group != "" {
					c.Add(migration.Spec.Group)
				}
			},
		}},
	)
}

// Run performs plans until ctx is done. APIServices stay after that.
func (c *Controller) Run(ctx context.Context, workers int) {
	registerMetrics()
	// Another replica reports from now on.
	defer published.Reset()
	c.Add(hostingVersion.Group)
	c.Queue.Run(ctx, workers)
}

// enqueue queues the group of an object, which is part of its name: "<plural>.<group>" or "<version>.<group>".
func (c *Controller) enqueue(object metav1.Object) {
	if name := schema.ParseGroupResource(object.GetName()).Group; name != "" {
		c.Add(name)
	}
}

// enqueueAll queues every group that annex serves or may have served.
func (c *Controller) enqueueAll() {
	all, err := c.list("")
	if err != nil {
		utilruntime.HandleErrorWithContext(context.Background(), err, "Listing groups failed", "controller", ControllerName)
		return
	}
	groups := sets.New[string]()
	for _, crd := range all.Annex {
		groups.Insert(crd.Spec.Group)
	}
	for _, resource := range all.Hosted {
		groups.Insert(schema.ParseGroupResource(resource.Name).Group)
	}
	for _, current := range all.APIServices {
		if current.Spec.Service != nil {
			groups.Insert(current.Spec.Group)
		}
	}
	for name := range groups.Delete(hostingVersion.Group) {
		c.Add(name)
	}
}

// isUnchanged reports whether an update of a HostedResource is irrelevant here.
func isUnchanged(before, after *group.HostedResource) bool {
	const from = hostingv1alpha1.DefinitionFromAnnotation
	same := func(kind string) bool {
		return ptr.Equal(meta.FindStatusCondition(before.Status.Conditions, kind), meta.FindStatusCondition(after.Status.Conditions, kind))
	}
	return before.ResourceVersion != after.ResourceVersion && before.Generation == after.Generation && before.UID == after.UID &&
		before.Annotations[from] == after.Annotations[from] && ptr.Equal(before.Status.Takeover, after.Status.Takeover) &&
		same(hostingv1alpha1.HostedResourceDefinitionSynced) && same(hostingv1alpha1.HostedResourcePublished)
}

// list reads the caches. Annex's definitions of one group have schemas, others have none.
func (c *Controller) list(name string) (group.Objects, error) {
	var all group.Objects
	var errs [5]error
	definitions := c.config.AnnexDefinitionInformer.Lister()
	all.APIServices, errs[0] = c.config.MainAPIServiceInformer.Lister().List(labels.Everything())
	all.Main, errs[1] = c.config.MainDefinitionInformer.Lister().List(labels.Everything())
	all.Annex, errs[2] = definitions.List(labels.Everything())
	all.Hosted, errs[3] = c.config.AnnexHostedInformer.Lister().List(labels.Everything())
	all.Migrations, errs[4] = c.config.AnnexMigrationInformer.Lister().List(labels.Everything())
	if err := errors.Join(errs[:]...); err != nil || name == "" {
		return all, err
	}
	var whole []*group.Definition
	for _, crd := range all.Annex {
		if crd.Spec.Group != name {
			continue
		}
		crd, err := framework.IgnoreNotFound(definitions.Get(crd.Name))
		if err != nil {
			return all, err
		}
		if crd != nil {
			whole = append(whole, crd)
		}
	}
	all.Annex = whole
	return all, nil
}
