// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package standalone lists the controllers of an annex without a main cluster, and has the small ones. Its subfolders have
// everything else that only such an annex needs.
package standalone

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/informers"
	eventsclient "k8s.io/client-go/kubernetes/typed/events/v1"
	"k8s.io/client-go/tools/cache"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/controller"
	"github.com/annex-dev/annex/pkg/controller/framework"
	"github.com/annex-dev/annex/pkg/controller/migration"
	hostinglisters "github.com/annex-dev/annex/pkg/generated/listers/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/standalone/controller/flowcontrol"
	"github.com/annex-dev/annex/pkg/standalone/controller/garbagecollector"
	"github.com/annex-dev/annex/pkg/standalone/controller/metadatainformers"
	"github.com/annex-dev/annex/pkg/standalone/controller/namespace"
	"github.com/annex-dev/annex/pkg/standalone/controller/rbac"
	"github.com/annex-dev/annex/pkg/standalone/controller/resourcequota"
)

// The names of the controllers in this package, in logs and metrics. As in Kubernetes,
// policyStatusName is the field manager of the status, too.
const (
	namespaceDefaultsName = "namespacedefaults"
	tokenCleanerName      = "tokencleaner"
	policyStatusName      = "validatingadmissionpolicy-status"
)

// StoredObjects are the objects of a custom resource in a namespace.
type StoredObjects = namespace.Contents

// Controllers is the controller.Mode of an annex without a main cluster. It has what
// kube-controller-manager runs for the Kubernetes kinds that annex serves.
type Controllers struct {
	// Informers watch the Kubernetes kinds. The server starts them.
	Informers informers.SharedInformerFactory
	// StoredObjects returns the objects of a custom resource in a namespace, also if no
	// version is served.
	StoredObjects namespace.StoredObjectsFunc
	// RootCA verifies annex's serving certificate; nil if it is unknown.
	RootCA framework.CABundleSource
	// CollectGarbage turns on the garbage collector. The server then also sets the
	// finalizers that it acts on.
	CollectGarbage bool

	// metadata watch all objects that annex serves, in a leadership. They run if a
	// controller gives them a handler.
	metadata *metadatainformers.Informers
	usage    controller.UsageTracker
}

// GroupRuns returns nil: there is no main cluster to move groups from or to.
func (s *Controllers) GroupRuns(controller.Config) (migration.NewGroupRunFunc, error) {
	return nil, nil
}

// RefusedStatic returns nothing: all kinds are annex's.
func (s *Controllers) RefusedStatic() map[schema.GroupKind]string { return nil }

// Table implements controller.Mode.
func (s *Controllers) Table() []controller.Descriptor {
	return []controller.Descriptor{
		// Deleting the content of a namespace takes many requests in sequence.
		{Name: namespace.ControllerName, Workers: 5, New: s.newNamespace},
		// A quota takes a read and sometimes a write, and must not wait for another's.
		{Name: resourcequota.ControllerName, Workers: 4, New: s.newResourceQuota},
		// Many objects may be deleted with one, and each takes several requests.
		{Name: garbagecollector.ControllerName, Workers: 8, New: s.newGarbageCollector},
		{Name: namespaceDefaultsName, Workers: 2, New: s.newNamespaceDefaults},
		// There are few tokens, and they expire one at a time.
		{Name: tokenCleanerName, Workers: 1, New: s.newTokenCleaner},
		// All objects of flow control are one key.
		{Name: flowcontrol.ControllerName, Workers: 1, New: s.newFlowControl},
		// Policies are few, and compiling one takes milliseconds.
		{Name: policyStatusName, Workers: 1, New: s.newPolicyStatus},
		// All cluster roles are one key.
		{Name: rbac.ControllerName, Workers: 1, New: s.newRBAC},
	}
}

// RequestInformers implements controller.Mode.
func (s *Controllers) RequestInformers() {
	s.Informers.Admissionregistration().V1().ValidatingAdmissionPolicies().Informer()
	s.Informers.Core().V1().Namespaces().Informer()
	s.Informers.Core().V1().ServiceAccounts().Informer()
	s.Informers.Core().V1().Secrets().Informer()
	s.Informers.Core().V1().ResourceQuotas().Informer()
	s.Informers.Flowcontrol().V1().FlowSchemas().Informer()
	s.Informers.Flowcontrol().V1().PriorityLevelConfigurations().Informer()
	s.Informers.Rbac().V1().ClusterRoles().Informer()
}

// Events implements controller.Mode.
func (s *Controllers) Events(config controller.Config) eventsclient.EventsV1Interface {
	return config.AnnexKube.EventsV1()
}

// SystemObjects implements controller.Mode.
func (s *Controllers) SystemObjects(config controller.Config) []controller.SystemObject {
	objects := []controller.SystemObject{
		{What: "the objects of flow control", Make: func(ctx context.Context) error {
			return flowcontrol.Ensure(ctx, config.AnnexKube.FlowcontrolV1())
		}},
		{What: "the default roles and bindings", Make: func(ctx context.Context) error {
			return rbac.Ensure(ctx, config.AnnexKube.RbacV1())
		}},
	}
	for _, name := range hostingv1alpha1.SystemNamespaces() {
		objects = append(objects, controller.SystemObject{What: "namespace " + name, Make: func(ctx context.Context) error {
			_, err := controller.GetOrCreate(ctx, config.AnnexKube.CoreV1().Namespaces(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
			return err
		}})
	}
	return objects
}

// ForLeadership implements controller.Mode.
func (s *Controllers) ForLeadership(ctx context.Context, config controller.Config) (controller.Mode, error) {
	led := *s
	led.usage = config.Usage
	if led.RootCA != nil {
		led.RootCA = framework.CABundleUntil(ctx, led.RootCA)
	}
	var err error
	if led.metadata, err = newMetadataInformers(config); err != nil {
		return nil, fmt.Errorf("create the metadata informers: %w", err)
	}
	return &led, nil
}

// RunInformers implements controller.Mode.
func (s *Controllers) RunInformers(ctx context.Context) {
	defer s.usage.AddHandler(s.metadata)()
	s.metadata.Run(ctx)
}

func newMetadataInformers(config controller.Config) (*metadatainformers.Informers, error) {
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
func stored(hostedResources hostinglisters.HostedResourceLister, tracker controller.UsageTracker) func(schema.GroupResource) (int64, bool) {
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

func (s *Controllers) newNamespace(config controller.Config) (controller.Controller, error) {
	return namespace.New(namespace.Config{
		AnnexNamespaces:           config.AnnexKube.CoreV1().Namespaces(),
		AnnexMetadata:             config.AnnexMetadata,
		StoredObjects:             s.StoredObjects,
		Discover:                  config.AnnexKube.Discovery().ServerPreferredNamespacedResourcesWithContext,
		Namespaces:                s.Informers.Core().V1().Namespaces(),
		CustomResourceDefinitions: config.AnnexDefinitionInformer,
	})
}

func (s *Controllers) newNamespaceDefaults(config controller.Config) (controller.Controller, error) {
	core := s.Informers.Core().V1()
	return newNamespaceDefaults(config.AnnexKube,
		core.Namespaces().Informer(), core.ServiceAccounts().Informer(), s.RootCA)
}

func (s *Controllers) newTokenCleaner(config controller.Config) (controller.Controller, error) {
	return newTokenCleaner(config.AnnexKube.CoreV1().Secrets(metav1.NamespaceSystem), s.Informers.Core().V1().Secrets().Informer())
}

func (s *Controllers) newFlowControl(config controller.Config) (controller.Controller, error) {
	flow := s.Informers.Flowcontrol().V1()
	return flowcontrol.New(flowcontrol.Config{
		AnnexFlowControl: config.AnnexKube.FlowcontrolV1(),
		FlowSchemas:      flow.FlowSchemas().Informer(),
		PriorityLevels:   flow.PriorityLevelConfigurations().Informer(),
	})
}

func (s *Controllers) newPolicyStatus(config controller.Config) (controller.Controller, error) {
	return newPolicyStatus(config.AnnexKube.AdmissionregistrationV1().ValidatingAdmissionPolicies(),
		s.Informers.Admissionregistration().V1().ValidatingAdmissionPolicies().Informer(), newPolicyCheck(config.AnnexKube.Discovery()))
}

func (s *Controllers) newRBAC(config controller.Config) (controller.Controller, error) {
	return rbac.New(rbac.Config{
		AnnexClusterRoles: config.AnnexKube.RbacV1().ClusterRoles(),
		ClusterRoles:      s.Informers.Rbac().V1().ClusterRoles().Informer(),
	})
}

func (s *Controllers) newGarbageCollector(config controller.Config) (controller.Controller, error) {
	if !s.CollectGarbage {
		return nil, nil
	}
	return garbagecollector.New(garbagecollector.Config{
		AnnexMetadata: config.AnnexMetadata,
		AnnexEvents:   config.AnnexKube.CoreV1(),
		Informers:     s.metadata,
	}), nil
}

func (s *Controllers) newResourceQuota(config controller.Config) (controller.Controller, error) {
	return resourcequota.New(resourcequota.Config{
		AnnexQuotas: config.AnnexKube.CoreV1(),
		Quotas:      s.Informers.Core().V1().ResourceQuotas().Informer(),
		Metadata:    s.metadata,
	})
}
