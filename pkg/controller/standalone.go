// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/informers"
	eventsclient "k8s.io/client-go/kubernetes/typed/events/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/annex-dev/annex/pkg/controller/bootstrap"
	"github.com/annex-dev/annex/pkg/controller/migration"
	hostinglisters "github.com/annex-dev/annex/pkg/generated/listers/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/standalone/controller/flowcontrol"
	"github.com/annex-dev/annex/pkg/standalone/controller/garbagecollector"
	"github.com/annex-dev/annex/pkg/standalone/controller/metadatainformers"
	"github.com/annex-dev/annex/pkg/standalone/controller/namespace"
	"github.com/annex-dev/annex/pkg/standalone/controller/policystatus"
	"github.com/annex-dev/annex/pkg/standalone/controller/rbac"
	"github.com/annex-dev/annex/pkg/standalone/controller/resourcequota"
	"github.com/annex-dev/annex/pkg/standalone/controller/rootca"
	"github.com/annex-dev/annex/pkg/standalone/controller/serviceaccount"
	"github.com/annex-dev/annex/pkg/standalone/controller/tokencleaner"
)

// Standalone is the mode in which annex serves the Kubernetes kinds itself: it runs
// what kube-controller-manager runs for them in a cluster.
type Standalone struct {
	// Informers watch the Kubernetes kinds. They belong to the server, which starts
	// those that RequestInformers asked for.
	Informers informers.SharedInformerFactory
	// RootCA verifies annex's serving certificate; nil if it is unknown.
	RootCA CABundleSource
	// CollectGarbage turns on the garbage collector. The server then also sets the
	// finalizers that it acts on.
	CollectGarbage bool

	// leadership is nil before New.
	leadership *leadership
	// metadata watch all objects that annex serves. They run if a controller gives
	// them a handler.
	metadata *metadatainformers.Informers
}

// groupRuns returns nil: there is no main cluster to move groups from or to.
func (s *Standalone) groupRuns(Config) (migration.NewGroupRunFunc, error) { return nil, nil }

// refusedStatic returns nothing: all kinds are annex's.
func (s *Standalone) refusedStatic() map[schema.GroupKind]string { return nil }

func (s *Standalone) controllers() []descriptor {
	return []descriptor{
		// Deleting the content of a namespace takes many requests in sequence.
		{namespace.ControllerName, 5, s.newNamespace},
		// A quota takes a read and sometimes a write, and must not wait for another's.
		{resourcequota.ControllerName, 4, s.newResourceQuota},
		// Many objects may be deleted with one, and each takes several requests.
		{garbagecollector.ControllerName, 8, s.newGarbageCollector},
		{serviceaccount.ControllerName, 2, s.newServiceAccount},
		{rootca.ControllerName, 2, s.newRootCA},
		// There are few tokens, and they expire one at a time.
		{tokencleaner.ControllerName, 1, s.newTokenCleaner},
		// All objects of flow control are one key.
		{flowcontrol.ControllerName, 1, s.newFlowControl},
		// Policies are few, and compiling one takes milliseconds.
		{policystatus.ControllerName, 1, s.newPolicyStatus},
		// All cluster roles are one key.
		{rbac.ControllerName, 1, s.newRBAC},
	}
}

func (s *Standalone) requestInformers() {
	s.Informers.Admissionregistration().V1().ValidatingAdmissionPolicies().Informer()
	s.Informers.Core().V1().Namespaces().Informer()
	s.Informers.Core().V1().ServiceAccounts().Informer()
	s.Informers.Core().V1().Secrets().Informer()
	s.Informers.Core().V1().ResourceQuotas().Informer()
	s.Informers.Flowcontrol().V1().FlowSchemas().Informer()
	s.Informers.Flowcontrol().V1().PriorityLevelConfigurations().Informer()
	s.Informers.Rbac().V1().ClusterRoles().Informer()
}

func (s *Standalone) events(config Config) eventsclient.EventsV1Interface {
	return config.AnnexKube.EventsV1()
}

func (s *Standalone) bootstrap(config Config, objects *bootstrap.Config) {
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

func (s *Standalone) forLeadership(config Config, l *leadership) (Mode, error) {
	led := *s
	led.leadership = l
	if led.RootCA != nil {
		led.RootCA = caBundle{led.RootCA, l}
	}
	var err error
	if led.metadata, err = newMetadataInformers(config); err != nil {
		return nil, fmt.Errorf("create the metadata informers: %w", err)
	}
	l.onEnd(config.Usage.AddHandler(led.metadata))
	return &led, nil
}

func (s *Standalone) startInformers(ctx context.Context) (wait func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.metadata.Run(ctx)
	}()
	return func() { <-done }
}

// inLeadership removes handlers from an informer of the server when the leadership ends.
func (s *Standalone) inLeadership(informer cache.SharedIndexInformer) cache.SharedIndexInformer {
	return leadershipInformer{informer, s.leadership}
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

// stored returns a function that counts the objects of a resource. It returns false
// while its Store has not been counted; an unavailable Store delays no other.
func stored(hostedResources hostinglisters.HostedResourceLister, tracker UsageTracker) func(schema.GroupResource) (int64, bool) {
	return func(resource schema.GroupResource) (int64, bool) {
		// Objects may be counted before the placement of the resource is known here.
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

func (s *Standalone) newNamespace(config Config) (controller, error) {
	return namespace.New(namespace.Config{
		AnnexNamespaces:           config.AnnexKube.CoreV1().Namespaces(),
		AnnexMetadata:             config.AnnexMetadata,
		StoredObjects:             config.StoredObjects,
		Discover:                  config.AnnexKube.Discovery().ServerPreferredNamespacedResourcesWithContext,
		Namespaces:                inLeadership(s.Informers.Core().V1().Namespaces(), s.leadership),
		CustomResourceDefinitions: config.AnnexDefinitionInformer,
	})
}

func (s *Standalone) newServiceAccount(config Config) (controller, error) {
	core := s.Informers.Core().V1()
	return serviceaccount.New(serviceaccount.Config{
		AnnexServiceAccounts: config.AnnexKube.CoreV1(),
		Namespaces:           s.inLeadership(core.Namespaces().Informer()),
		ServiceAccounts:      s.inLeadership(core.ServiceAccounts().Informer()),
	})
}

func (s *Standalone) newRootCA(config Config) (controller, error) {
	if s.RootCA == nil {
		return nil, nil
	}
	return rootca.New(rootca.Config{
		Annex:      config.AnnexKube,
		Namespaces: s.inLeadership(s.Informers.Core().V1().Namespaces().Informer()),
		CA:         s.RootCA,
	})
}

func (s *Standalone) newTokenCleaner(config Config) (controller, error) {
	return tokencleaner.New(tokencleaner.Config{
		AnnexSecrets: config.AnnexKube.CoreV1(),
		Secrets:      s.inLeadership(s.Informers.Core().V1().Secrets().Informer()),
	})
}

func (s *Standalone) newFlowControl(config Config) (controller, error) {
	flow := s.Informers.Flowcontrol().V1()
	return flowcontrol.New(flowcontrol.Config{
		AnnexFlowControl: config.AnnexKube.FlowcontrolV1(),
		FlowSchemas:      s.inLeadership(flow.FlowSchemas().Informer()),
		PriorityLevels:   s.inLeadership(flow.PriorityLevelConfigurations().Informer()),
	})
}

func (s *Standalone) newPolicyStatus(config Config) (controller, error) {
	return policystatus.New(policystatus.Config{
		AnnexPolicies: config.AnnexKube.AdmissionregistrationV1().ValidatingAdmissionPolicies(),
		Policies:      s.inLeadership(s.Informers.Admissionregistration().V1().ValidatingAdmissionPolicies().Informer()),
		Check:         policystatus.NewCheck(config.AnnexKube.Discovery()),
	})
}

func (s *Standalone) newRBAC(config Config) (controller, error) {
	return rbac.New(rbac.Config{
		AnnexClusterRoles: config.AnnexKube.RbacV1().ClusterRoles(),
		ClusterRoles:      s.inLeadership(s.Informers.Rbac().V1().ClusterRoles().Informer()),
	})
}

func (s *Standalone) newGarbageCollector(config Config) (controller, error) {
	if !s.CollectGarbage {
		return nil, nil
	}
	return garbagecollector.New(garbagecollector.Config{
		AnnexMetadata: config.AnnexMetadata,
		AnnexEvents:   config.AnnexKube.CoreV1(),
		Informers:     s.metadata,
	}), nil
}

func (s *Standalone) newResourceQuota(config Config) (controller, error) {
	return resourcequota.New(resourcequota.Config{
		AnnexQuotas: config.AnnexKube.CoreV1(),
		Quotas:      s.inLeadership(s.Informers.Core().V1().ResourceQuotas().Informer()),
		Metadata:    s.metadata,
	})
}
