// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package controller runs annex's controllers. This file holds the table of them;
// each has a package of its own.
package controller

import (
	"context"
	"fmt"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/annex-dev/annex/pkg/aggregated/controller/apiservice"
	"github.com/annex-dev/annex/pkg/aggregated/controller/crdsync"
	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/controller/bootstrap"
	"github.com/annex-dev/annex/pkg/controller/framework/metadatainformers"
	"github.com/annex-dev/annex/pkg/controller/hostedresource"
	"github.com/annex-dev/annex/pkg/controller/intact"
	"github.com/annex-dev/annex/pkg/controller/limits"
	"github.com/annex-dev/annex/pkg/controller/store"
	hostinglisters "github.com/annex-dev/annex/pkg/generated/listers/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/scheduler"
	"github.com/annex-dev/annex/pkg/standalone/controller/flowcontrol"
	"github.com/annex-dev/annex/pkg/standalone/controller/garbagecollector"
	"github.com/annex-dev/annex/pkg/standalone/controller/namespace"
	"github.com/annex-dev/annex/pkg/standalone/controller/policystatus"
	"github.com/annex-dev/annex/pkg/standalone/controller/rbac"
	"github.com/annex-dev/annex/pkg/standalone/controller/resourcequota"
	"github.com/annex-dev/annex/pkg/standalone/controller/rootca"
	"github.com/annex-dev/annex/pkg/standalone/controller/serviceaccount"
	"github.com/annex-dev/annex/pkg/standalone/controller/tokencleaner"
	"github.com/annex-dev/annex/pkg/storage/freeze"
	"github.com/annex-dev/annex/pkg/storage/usage"
)

// controller is what every entry of the table makes.
type controller interface {
	// Run works until ctx is done and returns once all its goroutines have.
	Run(ctx context.Context, workers int)
}

// mode says where a controller is needed.
type mode int

const (
	// always is for what annex does for its own objects.
	always mode = iota
	// standaloneOnly is for what a main cluster does where there is one.
	standaloneOnly
	// behindMainOnly is for what annex does in the main cluster.
	behindMainOnly
)

// covers reports whether a controller with this mode is needed with config.
func (m mode) covers(config Config) bool {
	return m == always || (m == behindMainOnly) == (config.Main != nil)
}

// descriptor is an entry of the table.
type descriptor struct {
	name string
	mode mode
	// workers is how many keys are reconciled at the same time.
	workers int
	// new makes the controller, or nil if the configuration does not want it.
	new func(Config) (controller, error)
}

// descriptors is the table of controllers. They are independent of each other,
// so their order does not matter.
func descriptors() []descriptor {
	return []descriptor{
		// Emptying a namespace is many requests, one after the other.
		{namespace.ControllerName, standaloneOnly, 5, newNamespace},
		// A quota is a read and at times a write, and must not wait for another's.
		{resourcequota.ControllerName, standaloneOnly, 4, newResourceQuota},
		// Many objects may go with one, and each is some requests.
		{garbagecollector.ControllerName, standaloneOnly, 8, newGarbageCollector},
		{serviceaccount.ControllerName, standaloneOnly, 2, newServiceAccount},
		{rootca.ControllerName, standaloneOnly, 2, newRootCA},
		// There are few tokens, and they expire one at a time.
		{tokencleaner.ControllerName, standaloneOnly, 1, newTokenCleaner},
		// All of flow control is looked at as a whole.
		{flowcontrol.ControllerName, standaloneOnly, 1, newFlowControl},
		// Policies are few, and compiling them takes milliseconds each.
		{policystatus.ControllerName, standaloneOnly, 1, newPolicyStatus},
		// All cluster roles are looked at as a whole.
		{rbac.ControllerName, standaloneOnly, 1, newRBAC},
		// Five hundred definitions may all be found at a start.
		{hostedresource.ControllerName, always, 4, newHostedResource},
		// Few resources have limits, and how full they are is written once a second.
		{limits.ControllerName, always, 2, newLimits},
		// It hardly ever happens.
		{intact.ControllerName, always, 1, newIntact},
		// Decisions are made one at a time, and written down so many at a time.
		{scheduler.ControllerName, always, 16, newScheduler},
		// One that does not answer must not keep others waiting.
		{store.ControllerName, always, 4, newStore},
		// A group waits for the main cluster to answer, and for no other group.
		{apiservice.ControllerName, behindMainOnly, 4, newAPIService},
		// Taking a group over is some requests for each of its definitions.
		{crdsync.ControllerName, behindMainOnly, 4, newDefinition},
	}
}

func newMetadataInformers(config Config) (*metadatainformers.Informers, error) {
	return metadatainformers.New(metadatainformers.Config{
		AnnexMetadata:             config.AnnexMetadata,
		Discover:                  config.AnnexKube.Discovery().ServerGroupsAndResourcesWithContext,
		CustomResourceDefinitions: config.AnnexDefinitionInformer,
		Stored:                    stored(config.AnnexHostedResourceInformer.Lister(), config.Usage),
		Synced:                    []cache.DoneChecker{config.AnnexHostedResourceInformer.Informer().HasSyncedChecker()},
	})
}

// stored returns what says how many objects a resource has, and false while its Store
// does not. Other Stores are not waited for: they may be away for long.
func stored(hostedResources hostinglisters.HostedResourceLister, tracker UsageTracker) func(schema.GroupResource) (int64, bool) {
	return func(resource schema.GroupResource) (int64, bool) {
		// What is counted is there, also before it is known here where.
		if objects := tracker.Usage(resource).Objects; objects > 0 {
			return objects, true
		}
		hosted, err := hostedResources.Get(resource.String())
		if err != nil || hosted.Spec.StoreName == "" {
			return 0, true
		}
		in, known := tracker.In(hosted.Spec.StoreName, resource)
		return in.Objects, known
	}
}

func newNamespace(config Config) (controller, error) {
	return namespace.New(namespace.Config{
		AnnexNamespaces:           config.AnnexKube.CoreV1().Namespaces(),
		AnnexMetadata:             config.AnnexMetadata,
		Discover:                  config.AnnexKube.Discovery().ServerPreferredNamespacedResourcesWithContext,
		Namespaces:                config.AnnexNamespaceInformer,
		CustomResourceDefinitions: config.AnnexDefinitionInformer,
		SettlePeriod:              config.NamespaceSettlePeriod,
	})
}

func newServiceAccount(config Config) (controller, error) {
	core := config.AnnexInformers.Core().V1()
	return serviceaccount.New(serviceaccount.Config{
		AnnexServiceAccounts: config.AnnexKube.CoreV1(),
		Namespaces:           config.inTerm(core.Namespaces().Informer()),
		ServiceAccounts:      config.inTerm(core.ServiceAccounts().Informer()),
	})
}

func newRootCA(config Config) (controller, error) {
	if config.RootCA == nil {
		return nil, nil
	}
	return rootca.New(rootca.Config{
		Annex:      config.AnnexKube,
		Namespaces: config.inTerm(config.AnnexInformers.Core().V1().Namespaces().Informer()),
		CA:         config.RootCA,
	})
}

func newTokenCleaner(config Config) (controller, error) {
	return tokencleaner.New(tokencleaner.Config{
		AnnexSecrets: config.AnnexKube.CoreV1(),
		Secrets:      config.inTerm(config.AnnexInformers.Core().V1().Secrets().Informer()),
	})
}

func newFlowControl(config Config) (controller, error) {
	flow := config.AnnexInformers.Flowcontrol().V1()
	return flowcontrol.New(flowcontrol.Config{
		AnnexFlowControl: config.AnnexKube.FlowcontrolV1(),
		FlowSchemas:      config.inTerm(flow.FlowSchemas().Informer()),
		PriorityLevels:   config.inTerm(flow.PriorityLevelConfigurations().Informer()),
	})
}

func newPolicyStatus(config Config) (controller, error) {
	return policystatus.New(policystatus.Config{
		AnnexPolicies: config.AnnexKube.AdmissionregistrationV1().ValidatingAdmissionPolicies(),
		Policies:      config.inTerm(config.AnnexInformers.Admissionregistration().V1().ValidatingAdmissionPolicies().Informer()),
		Check:         policystatus.NewCheck(config.AnnexKube.Discovery()),
	})
}

func newRBAC(config Config) (controller, error) {
	return rbac.New(rbac.Config{
		AnnexClusterRoles: config.AnnexKube.RbacV1().ClusterRoles(),
		ClusterRoles:      config.inTerm(config.AnnexInformers.Rbac().V1().ClusterRoles().Informer()),
	})
}

func newGarbageCollector(config Config) (controller, error) {
	if !config.CollectGarbage {
		return nil, nil
	}
	return garbagecollector.New(garbagecollector.Config{
		AnnexMetadata: config.AnnexMetadata,
		AnnexEvents:   config.AnnexKube.CoreV1(),
		Informers:     config.AnnexMetadataInformers,
	}), nil
}

func newResourceQuota(config Config) (controller, error) {
	return resourcequota.New(resourcequota.Config{
		AnnexQuotas: config.AnnexKube.CoreV1(),
		Quotas:      config.inTerm(config.AnnexInformers.Core().V1().ResourceQuotas().Informer()),
		Metadata:    config.AnnexMetadataInformers,
	})
}

func newHostedResource(config Config) (controller, error) {
	return hostedresource.New(hostedresource.Config{
		AnnexHostedResources:      config.AnnexHosting.HostingV1alpha1().HostedResources(),
		AnnexDefinitions:          config.AnnexAPIExtensions.ApiextensionsV1().CustomResourceDefinitions(),
		HostedResources:           config.AnnexHostedResourceInformer,
		Stores:                    config.AnnexStoreInformer,
		CustomResourceDefinitions: config.AnnexDefinitionInformer,
		Usage:                     config.Usage.In,
	})
}

func newLimits(config Config) (controller, error) {
	return limits.New(limits.Config{
		AnnexHostedResources: config.AnnexHosting.HostingV1alpha1().HostedResources(),
		HostedResources:      config.AnnexHostedResourceInformer,
		Usage:                config.Usage,
		Events:               config.recorder(limits.ControllerName),
	})
}

func newIntact(config Config) (controller, error) {
	return intact.New(intact.Config{
		AnnexHostedResources: config.AnnexHosting.HostingV1alpha1().HostedResources(),
		HostedResources:      config.AnnexHostedResourceInformer,
		Unreadable:           config.Unreadable,
		Events:               config.recorder(intact.ControllerName),
	})
}

func newScheduler(config Config) (controller, error) {
	return scheduler.New(scheduler.Config{
		Name:                 hostingv1alpha1.DefaultSchedulerName,
		AnnexHostedResources: config.AnnexHosting.HostingV1alpha1().HostedResources(),
		HostedResources:      config.AnnexHostedResourceInformer,
		Stores:               config.AnnexStoreInformer,
		Events:               config.recorder(hostingv1alpha1.DefaultSchedulerName),
	})
}

func newStore(config Config) (controller, error) {
	return store.New(store.Config{
		AnnexStores:          config.AnnexHosting.HostingV1alpha1().Stores(),
		AnnexHostedResources: config.AnnexHosting.HostingV1alpha1().HostedResources(),
		Stores:               config.AnnexStoreInformer,
		HostedResources:      config.AnnexHostedResourceInformer,
		Connection:           func(name string) (store.Connection, error) { return config.Stores.Get(name) },
		AddListener:          config.Stores.AddListener,
		Objects: func(name string) (objects int64, known bool) {
			total, known := config.Usage.Store(name)
			return total.Objects, known
		},
		Events: config.recorder("annex-stores"),
	})
}

func newAPIService(config Config) (controller, error) {
	return apiservice.New(apiservice.Config{
		MainAPIServices:         config.Main.APIRegistration.ApiregistrationV1().APIServices(),
		ReadStoreThroughMain:    apiservice.ReadStore(config.Main.Dynamic),
		ServedBy:                config.Main.AnsweredBy,
		AnnexDefinitions:        config.AnnexAPIExtensions.ApiextensionsV1().CustomResourceDefinitions(),
		AnnexHostedResources:    config.AnnexHosting.HostingV1alpha1().HostedResources(),
		MainAPIServiceInformer:  config.Main.APIRegistrationInformers.Apiregistration().V1().APIServices(),
		MainDefinitionInformer:  config.Main.APIExtensionsInformers.Apiextensions().V1().CustomResourceDefinitions(),
		AnnexDefinitionInformer: config.AnnexDefinitionInformer,
		AnnexHostedInformer:     config.AnnexHostedResourceInformer,
		AnnexStoreInformer:      config.AnnexStoreInformer,
		Service:                 apiservice.Service(config.Main.PublishService),
		CABundle:                config.Main.CABundle,
	})
}

func newDefinition(config Config) (controller, error) {
	return crdsync.New(crdsync.Config{
		PublishedBy:             hostingv1alpha1.PublishedBy(config.Main.PublishService.Namespace, config.Main.PublishService.Name),
		MainObjects:             config.Main.Dynamic,
		MainAPIServices:         config.Main.APIRegistration.ApiregistrationV1().APIServices(),
		MainDefinitions:         config.Main.APIExtensions.ApiextensionsV1().CustomResourceDefinitions(),
		MainDefinitionInformer:  config.Main.APIExtensionsInformers.Apiextensions().V1().CustomResourceDefinitions(),
		MainAPIServiceInformer:  config.Main.APIRegistrationInformers.Apiregistration().V1().APIServices(),
		AnnexObjects:            config.AnnexMetadata,
		AnnexStored:             annexStored(config),
		AnnexDefinitions:        config.AnnexAPIExtensions.ApiextensionsV1().CustomResourceDefinitions(),
		AnnexHostedResources:    config.AnnexHosting.HostingV1alpha1().HostedResources(),
		AnnexDefinitionInformer: config.AnnexDefinitionInformer,
		AnnexHostedInformer:     config.AnnexHostedResourceInformer,
		AnnexStoreInformer:      config.AnnexStoreInformer,
	})
}

// annexStored finds a resource in its Store, by its name.
func annexStored(config Config) func(name string) (crdsync.Freezable, error) {
	hostedResources := config.AnnexHostedResourceInformer.Lister()
	return func(name string) (crdsync.Freezable, error) {
		hosted, err := hostedResources.Get(name)
		if apierrors.IsNotFound(err) || err == nil && hosted.Spec.StoreName == "" {
			return nil, crdsync.ErrNotPlaced
		}
		if err != nil {
			return nil, fmt.Errorf("read hosted resource %s: %w", name, err)
		}
		in, err := config.Stores.Get(hosted.Spec.StoreName)
		if err != nil {
			return nil, fmt.Errorf("find store %s of %s: %w", hosted.Spec.StoreName, name, err)
		}
		return freeze.Target{KV: in.Client().KV, Prefix: in.Prefix(), Resource: schema.ParseGroupResource(name)}, nil
	}
}

// Controllers are all controllers of one term, ready to run.
type Controllers struct {
	config  Config
	term    term
	entries []entry
}

// entry is a controller that was made, and how many workers it gets.
type entry struct {
	controller controller
	workers    int
}

// New makes all controllers for one term. They do nothing before Run, which must
// follow: it takes back what New registered with the server's informers and the
// usage tracker.
func New(config Config) (*Controllers, error) {
	c := &Controllers{}
	c.config = config.forTerm(&c.term)
	if config.Main == nil {
		var err error
		if c.config.AnnexMetadataInformers, err = newMetadataInformers(c.config); err != nil {
			c.term.end()
			return nil, fmt.Errorf("create the informers of metadata: %w", err)
		}
		c.term.undo = append(c.term.undo, config.Usage.AddHandler(c.config.AnnexMetadataInformers))
	}
	for _, d := range descriptors() {
		if !d.mode.covers(config) {
			continue
		}
		made, err := d.new(c.config)
		if err != nil {
			c.term.end()
			return nil, fmt.Errorf("create the %s controller: %w", d.name, err)
		}
		if made == nil {
			continue
		}
		if handler, ok := made.(usage.Handler); ok {
			c.term.undo = append(c.term.undo, config.Usage.AddHandler(handler))
		}
		if handler, ok := made.(usage.StoreHandler); ok {
			c.term.undo = append(c.term.undo, config.Usage.AddStoreHandler(handler))
		}
		c.entries = append(c.entries, entry{controller: made, workers: d.workers})
	}
	return c, nil
}

// Bootstrap makes the objects that every annex has, and returns once they exist
// or, with an error, when ctx is done before. It needs a server that answers and
// waits for one.
func Bootstrap(ctx context.Context, config Config) error {
	objects := bootstrap.Config{
		AnnexStores:  config.AnnexHosting.HostingV1alpha1().Stores(),
		DefaultStore: config.DefaultStore,
	}
	if config.Main == nil {
		objects.AnnexNamespaces = config.AnnexKube.CoreV1().Namespaces()
		objects.Others = []bootstrap.Object{
			{What: "the objects of flow control", Make: func(ctx context.Context) error {
				return flowcontrol.Ensure(ctx, config.AnnexKube.FlowcontrolV1())
			}},
			{What: "the default roles and bindings", Make: func(ctx context.Context) error {
				return rbac.Ensure(ctx, config.AnnexKube.RbacV1())
			}},
		}
	}
	return bootstrap.Run(ctx, objects)
}

// Run starts the term's informers and runs all controllers until ctx is done. It
// returns once everything it started has stopped, and is called once.
func (c *Controllers) Run(ctx context.Context) {
	ctx = klog.NewContext(ctx, klog.LoggerWithName(klog.FromContext(ctx), "controllers"))
	defer c.term.end()
	if err := c.config.events.StartRecordingToSinkWithContext(ctx); err != nil {
		klog.FromContext(ctx).Error(err, "Events are not recorded")
	}
	stopInformers := c.config.startInformers(ctx)
	defer stopInformers()

	var running sync.WaitGroup
	defer running.Wait()
	if informers := c.config.AnnexMetadataInformers; informers != nil {
		running.Go(func() { informers.Run(ctx) })
	}
	for _, e := range c.entries {
		running.Go(func() { e.controller.Run(ctx, e.workers) })
	}
}
