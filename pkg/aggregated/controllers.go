// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package aggregated lists the controllers of an annex behind a main cluster. Its subfolders have everything else that
// only such an annex needs.
package aggregated

import (
	"context"

	apiextensionsclient "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	apiextensionsinformers "k8s.io/apiextensions-apiserver/pkg/client/informers/externalversions"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	eventsclient "k8s.io/client-go/kubernetes/typed/events/v1"
	"k8s.io/client-go/openapi"
	restclient "k8s.io/client-go/rest"
	aggregatorclient "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset"
	aggregatorinformers "k8s.io/kube-aggregator/pkg/client/informers/externalversions"

	"github.com/annex-dev/annex/pkg/aggregated/group"
	groupcontroller "github.com/annex-dev/annex/pkg/aggregated/group/controller"
	"github.com/annex-dev/annex/pkg/aggregated/groupmove"
	"github.com/annex-dev/annex/pkg/aggregated/maincluster"
	"github.com/annex-dev/annex/pkg/aggregated/maincopy"
	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/controller"
	"github.com/annex-dev/annex/pkg/controller/framework"
	"github.com/annex-dev/annex/pkg/controller/migration"
	"github.com/annex-dev/annex/pkg/controller/migration/migrationstatus"
	"github.com/annex-dev/annex/pkg/staticobjects"
)

// Controllers is the controller.Mode of an annex behind a main cluster. Its clients are
// clients of that cluster.
type Controllers struct {
	// Login is the login of the clients.
	Login           *restclient.Config
	Kube            kubernetes.Interface
	Dynamic         dynamic.Interface
	APIExtensions   apiextensionsclient.Interface
	APIRegistration aggregatorclient.Interface

	// ServedBy requests a group version through the main cluster, and returns the
	// value of hosting's PublishedByHeader in the response.
	ServedBy func(ctx context.Context, version schema.GroupVersion) (string, error)
	// Discovered returns the resources of a group in the main cluster's discovery, by version.
	Discovered func(ctx context.Context, group string) (map[string][]string, error)

	// PublishService is the Service in the main cluster that leads to annex.
	PublishService maincluster.Service
	// CABundle verifies annex's serving certificates.
	CABundle framework.CABundleSource

	// These are informers of one leadership.
	apiExtensionsInformers   apiextensionsinformers.SharedInformerFactory
	apiRegistrationInformers aggregatorinformers.SharedInformerFactory
}

// Table implements controller.Mode.
func (a *Controllers) Table() []controller.Descriptor {
	return []controller.Descriptor{
		// A group waits for the main cluster to respond, and for no other group.
		{Name: groupcontroller.ControllerName, Workers: 8, New: a.newGroup},
	}
}

// RequestInformers does nothing: the informers belong to a leadership.
func (a *Controllers) RequestInformers() {}

// SystemObjects returns nothing: the main cluster creates the objects of the Kubernetes kinds.
func (a *Controllers) SystemObjects(controller.Config) []controller.SystemObject { return nil }

// RefusedStatic refuses the kind that the controller of groups writes.
func (a *Controllers) RefusedStatic() map[schema.GroupKind]string {
	return map[schema.GroupKind]string{
		staticobjects.Definition: "annex takes CustomResourceDefinitions from the main cluster: apply it there",
	}
}

// Events implements controller.Mode: events are recorded in the main cluster.
func (a *Controllers) Events(controller.Config) eventsclient.EventsV1Interface {
	return a.Kube.EventsV1()
}

// ForLeadership implements controller.Mode.
func (a *Controllers) ForLeadership(ctx context.Context, _ controller.Config) (controller.Mode, error) {
	led := *a
	led.apiExtensionsInformers = apiextensionsinformers.NewSharedInformerFactory(a.APIExtensions, controller.InformerResync)
	led.apiRegistrationInformers = aggregatorinformers.NewSharedInformerFactory(a.APIRegistration, controller.InformerResync)
	led.CABundle = framework.CABundleUntil(ctx, a.CABundle)
	return &led, nil
}

// RunInformers implements controller.Mode.
func (a *Controllers) RunInformers(ctx context.Context) {
	a.apiExtensionsInformers.StartWithContext(ctx)
	a.apiRegistrationInformers.StartWithContext(ctx)
	<-ctx.Done()
	a.apiExtensionsInformers.Shutdown()
	a.apiRegistrationInformers.Shutdown()
}

func (a *Controllers) newGroup(config controller.Config) (controller.Controller, error) {
	mainCopy, err := a.mainCopy(config)
	if err != nil {
		return nil, err
	}
	return groupcontroller.New(groupcontroller.Config{
		MainObjects:             a.Dynamic,
		MainAPIServices:         a.APIRegistration.ApiregistrationV1().APIServices(),
		MainDefinitions:         a.APIExtensions.ApiextensionsV1().CustomResourceDefinitions(),
		MainDefinitionInformer:  a.apiExtensionsInformers.Apiextensions().V1().CustomResourceDefinitions(),
		MainAPIServiceInformer:  a.apiRegistrationInformers.Apiregistration().V1().APIServices(),
		ServedBy:                a.ServedBy,
		Unfreeze:                mainCopy.ForgetUndefined,
		AnnexObjects:            config.AnnexMetadata,
		AnnexDefinitions:        config.AnnexAPIExtensions.ApiextensionsV1().CustomResourceDefinitions(),
		AnnexHostedResources:    config.AnnexHosting.HostingV1alpha1().HostedResources(),
		AnnexMigrations:         config.AnnexHosting.HostingV1alpha1().Migrations(),
		AnnexDefinitionInformer: config.AnnexWholeDefinitions,
		AnnexHostedInformer:     config.AnnexHostedResourceInformer,
		AnnexStoreInformer:      config.AnnexStoreInformer,
		AnnexMigrationInformer:  config.AnnexMigrationInformer,
		Service:                 group.Service(a.PublishService),
		CABundle:                a.CABundle,
	})
}

func (a *Controllers) mainCopy(config controller.Config) (*maincopy.Copy, error) {
	return maincopy.New(maincopy.Config{Main: a.Login, Annex: config.AnnexLogin})
}

// GroupRuns implements controller.Mode.
func (a *Controllers) GroupRuns(config controller.Config) (migration.NewGroupRunFunc, error) {
	mainCopy, err := a.mainCopy(config)
	if err != nil {
		return nil, err
	}
	groupmove.RegisterMetrics()
	runs := groupmove.Config{
		PublishedBy:      hostingv1alpha1.PublishedBy(a.PublishService.Namespace, a.PublishService.Name),
		ServedBy:         a.ServedBy,
		Discovered:       a.Discovered,
		MainDefinitions:  a.APIExtensions.ApiextensionsV1().CustomResourceDefinitions(),
		MainAPIServices:  a.APIRegistration.ApiregistrationV1().APIServices(),
		MainOpenAPI:      openapi.NewClientWithContext(a.Kube.Discovery().RESTClient()),
		MainDynamic:      a.Dynamic,
		AnnexDefinitions: config.AnnexAPIExtensions.ApiextensionsV1().CustomResourceDefinitions(),
		AnnexHosting:     config.AnnexHosting.HostingV1alpha1(),
		NewImporter:      config.NewImporter,
		NewExporter:      config.NewExporter,
		MainCopy:         mainCopy,
	}
	return func(status *migrationstatus.Writer, changed <-chan struct{}) migration.GroupRun {
		return groupmove.New(runs, status, changed)
	}, nil
}
