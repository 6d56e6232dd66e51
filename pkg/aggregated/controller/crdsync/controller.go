// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package crdsync makes annex follow the CustomResourceDefinitions of the main cluster
// that are labelled annex.dev/hosted.
//
// The main cluster routes requests per group version, so the definitions of a group are
// handled together. A Migration takes a group over; package groupmove runs it. Once all
// definitions of a group are labelled, and the main cluster stores no object of any, this
// package creates one. What a Migration needs here depends on its phase: definitions in
// annex, the takeover in the status of their HostedResources, which the apiservice
// controller reads, or that the main cluster serves the group again.
//
// From then on annex's definition follows the main cluster's, which gets annex's
// finalizer. As long as annex serves the group, a policy freezes it in the main cluster, so
// that versions and definitions that are added have no objects there. When a definition is
// deleted, annex deletes its own with its objects, and removes the finalizer after the main
// cluster no longer lists the resource. A definition that loses its label or is missing
// causes no deletion.
//
// The function plan decides what happens to a group. All state is in the objects: the
// annotations of annex's definitions, the APIServices, Migrations, and the status of the
// HostedResources.
package crdsync

import (
	"context"
	"fmt"
	"strings"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensionsclient "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset/typed/apiextensions/v1"
	apiextensionsinformers "k8s.io/apiextensions-apiserver/pkg/client/informers/externalversions/apiextensions/v1"
	apiextensionslisters "k8s.io/apiextensions-apiserver/pkg/client/listers/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"
	apiregistrationclient "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset/typed/apiregistration/v1"
	apiregistrationinformers "k8s.io/kube-aggregator/pkg/client/informers/externalversions/apiregistration/v1"
	apiregistrationlisters "k8s.io/kube-aggregator/pkg/client/listers/apiregistration/v1"
	"k8s.io/utils/ptr"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/controller/framework"
	"github.com/annex-dev/annex/pkg/controller/framework/conditions"
	hostingclient "github.com/annex-dev/annex/pkg/generated/clientset/versioned/typed/hosting/v1alpha1"
	hostinginformers "github.com/annex-dev/annex/pkg/generated/informers/externalversions/hosting/v1alpha1"
	hostinglisters "github.com/annex-dev/annex/pkg/generated/listers/hosting/v1alpha1"
)

// ControllerName names the controller in logs and metrics.
const ControllerName = "crdsync"

// Config holds what the controller depends on.
type Config struct {
	// PublishedBy is the label value of the APIServices that lead to this annex.
	PublishedBy string

	// MainObjects reads the objects of definitions in the main cluster.
	MainObjects            dynamic.Interface
	MainAPIServices        apiregistrationclient.APIServiceInterface
	MainDefinitions        apiextensionsclient.CustomResourceDefinitionInterface
	MainDefinitionInformer apiextensionsinformers.CustomResourceDefinitionInformer
	MainAPIServiceInformer apiregistrationinformers.APIServiceInformer

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
}

// Controller makes annex follow definitions of the main cluster. Its keys are API groups.
type Controller struct{ *framework.Queue[string] }

// New returns a controller that adds handlers to the informers of config. It does nothing
// before Run.
func New(config Config) (*Controller, error) {
	c := &Controller{}
	readers := readers{
		publishedBy: config.PublishedBy,
		main:        config.MainDefinitionInformer.Lister(),
		apiServices: config.MainAPIServiceInformer.Lister(),
		annex:       config.AnnexDefinitionInformer.Lister(),
		hosted:      config.AnnexHostedInformer.Lister(),
		stores:      config.AnnexStoreInformer.Lister(),
		migrations:  config.AnnexMigrationInformer.Lister(),
	}
	r := &reconciler{
		readGroup:   readers.read,
		mainObjects: config.MainObjects,
		annex:       annexObjects{client: config.AnnexObjects},

		annexDefinitions: config.AnnexDefinitions,
		annexMigrations:  config.AnnexMigrations,
		mainDefinitions:  mainDefinitions{client: config.MainDefinitions, finalizer: hostingv1alpha1.Finalizer(config.PublishedBy)},
		giveBack:         (&mainRoutes{mainAPIServices: config.MainAPIServices}).giveBack,
		unfreeze:         config.Unfreeze,
		reporter: &statusWriter{
			annexHostedResources: config.AnnexHostedResources, list: readers.hostedOf, now: time.Now,
			writer: conditions.Writer{
				Type: hostingv1alpha1.HostedResourceDefinitionSynced, FieldManager: fieldManager, AnnexHostedResources: config.AnnexHostedResources,
			},
		},
	}
	c.Queue = framework.NewQueue(framework.QueueConfig[string]{Name: ControllerName, Reconcile: r.reconcile})
	// Only the UID of the Store "default" matters, which is read when needed.
	c.WaitFor(config.AnnexStoreInformer.Informer().HasSyncedChecker())
	return c, c.addEventHandlers(config)
}

func (c *Controller) addEventHandlers(config Config) error {
	every := framework.Every(c.enqueue)
	resources := framework.Every(func(resource *hosted) { c.enqueue(resource) })
	resources.Updated = func(before, after *hosted) {
		if !isUnchanged(before, after) {
			c.enqueue(after)
		}
	}
	return c.Watch(
		framework.Source{Name: "custom resource definitions of the main cluster", Informer: config.MainDefinitionInformer.Informer(), Handler: every},
		framework.Source{Name: "APIServices of the main cluster", Informer: config.MainAPIServiceInformer.Informer(), Handler: every},
		framework.Source{Name: "custom resource definitions", Informer: config.AnnexDefinitionInformer.Informer(), Handler: every},
		framework.Source{Name: "hosted resources", Informer: config.AnnexHostedInformer.Informer(), Handler: resources},
		framework.Source{Name: "migrations", Informer: config.AnnexMigrationInformer.Informer(), Handler: framework.Handler[*hostingv1alpha1.Migration]{
			Updated: func(before, after *hostingv1alpha1.Migration) {
				if after.Spec.Group != "" && (movementOf(before) != movementOf(after) || before.Status.Phase != after.Status.Phase || before.Status.StartTime.IsZero()) {
					c.Add(after.Spec.Group)
				}
			},
			Deleted: func(migration *hostingv1alpha1.Migration) {
				if migration.Spec.Group != "" {
					c.Add(migration.Spec.Group)
				}
			},
		}},
	)
}

// enqueue queues the group of an object, which is part of its name: "<plural>.<group>" or
// "<version>.<group>".
func (c *Controller) enqueue(object metav1.Object) {
	if group := groupOf(object.GetName()); group != "" {
		c.Add(group)
	}
}

// groupOf returns the group in the name of a definition, HostedResource or APIService.
func groupOf(name string) string {
	_, group, _ := strings.Cut(name, ".")
	return group
}

// isUnchanged reports whether an update of a HostedResource is irrelevant here. The usage
// in its status changes often.
func isUnchanged(before, after *hosted) bool {
	const from = hostingv1alpha1.DefinitionFromAnnotation
	return before.Generation == after.Generation && before.Annotations[from] == after.Annotations[from] &&
		ptr.Equal(before.Status.Takeover, after.Status.Takeover) && ptr.Equal(syncedCondition(before), syncedCondition(after))
}

func syncedCondition(resource *hosted) *metav1.Condition {
	return meta.FindStatusCondition(resource.Status.Conditions, hostingv1alpha1.HostedResourceDefinitionSynced)
}

// readers read from caches.
type readers struct {
	publishedBy string
	main, annex apiextensionslisters.CustomResourceDefinitionLister
	apiServices apiregistrationlisters.APIServiceLister
	hosted      hostinglisters.HostedResourceLister
	stores      hostinglisters.StoreLister
	migrations  hostinglisters.MigrationLister
}

// read returns a group without observations.
func (r readers) read(name string) (*group, error) {
	g := &group{
		name: name, finalizer: hostingv1alpha1.Finalizer(r.publishedBy),
		apiServices: map[string]*apiService{}, routes: map[string]route{}, listed: map[string][]string{},
		takeovers: map[string]hostingv1alpha1.HostedResourceTakeover{},
	}
	var err error
	if g.main, err = definitionsOf(r.main, name); err != nil {
		return nil, fmt.Errorf("list definitions of the main cluster: %w", err)
	}
	if g.annex, err = definitionsOf(r.annex, name); err != nil {
		return nil, fmt.Errorf("list definitions: %w", err)
	}
	if err := g.readMigrations(r.migrations); err != nil {
		return nil, err
	}
	apiServices, err := r.apiServices.List(labels.Everything())
	if err != nil {
		return nil, fmt.Errorf("list APIServices of the main cluster: %w", err)
	}
	store, err := r.stores.Get(hostingv1alpha1.DefaultStoreName)
	if err != nil {
		return nil, fmt.Errorf("read store %s: %w", hostingv1alpha1.DefaultStoreName, err)
	}
	annex := identity{publishedBy: r.publishedBy, store: string(store.UID)}
	for _, current := range apiServices {
		if current.Spec.Group == name {
			g.apiServices[current.Spec.Version] = current
			g.routes[current.Spec.Version] = annex.routeOf(current)
			g.listed[current.Spec.Version] = listedBy(current)
		}
	}
	resources, err := r.hostedOf(name)
	if err != nil {
		return nil, err
	}
	for _, resource := range resources {
		if takeover := resource.Status.Takeover; takeover != nil {
			g.takeovers[resource.Name] = *takeover
		}
	}
	return g, nil
}

// hostedOf lists the HostedResources of a group.
func (r readers) hostedOf(group string) ([]*hosted, error) {
	all, err := r.hosted.List(labels.Everything())
	if err != nil {
		return nil, fmt.Errorf("list hosted resources: %w", err)
	}
	var of []*hosted
	for _, resource := range all {
		if groupOf(resource.Name) == group {
			of = append(of, resource)
		}
	}
	return of, nil
}

func definitionsOf(lister apiextensionslisters.CustomResourceDefinitionLister, group string) (map[string]*apiextensionsv1.CustomResourceDefinition, error) {
	all, err := lister.List(labels.Everything())
	if err != nil {
		return nil, err
	}
	of := map[string]*apiextensionsv1.CustomResourceDefinition{}
	for _, crd := range all {
		if crd.Spec.Group != group {
			continue
		}
		// Annex's lister has schemas only in what it gets.
		if crd, err = framework.IgnoreNotFound(lister.Get(crd.Name)); err != nil {
			return nil, err
		}
		if crd != nil {
			of[crd.Name] = crd
		}
	}
	return of, nil
}
