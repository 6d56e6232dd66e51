// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package maincluster

import (
	"context"
	"fmt"

	apiextensionshelpers "k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensionsinformers "k8s.io/apiextensions-apiserver/pkg/client/informers/externalversions"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/tools/cache"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	aggregatorinformers "k8s.io/kube-aggregator/pkg/client/informers/externalversions"
)

// APIs watches the APIs that the main cluster serves itself, reduced to the parts of
// definitions and APIServices that are used. Each replica has one, since each describes
// itself to the main cluster.
type APIs struct {
	service      Service
	definitions  apiextensionsinformers.SharedInformerFactory
	registration aggregatorinformers.SharedInformerFactory
}

// APIs creates the informers. APIServices that point to the Service are annex's.
func (c *Cluster) APIs(service Service) (*APIs, error) {
	a := &APIs{
		service:      service,
		definitions:  apiextensionsinformers.NewSharedInformerFactory(c.APIExtensions, informerResync),
		registration: aggregatorinformers.NewSharedInformerFactory(c.APIRegistration, informerResync),
	}
	if err := a.definitionInformer().SetTransform(bareDefinition); err != nil {
		return nil, fmt.Errorf("watch the main cluster's definitions: %w", err)
	}
	if err := a.apiServiceInformer().SetTransform(bareAPIService); err != nil {
		return nil, fmt.Errorf("watch the main cluster's APIServices: %w", err)
	}
	return a, nil
}

func (a *APIs) definitionInformer() cache.SharedIndexInformer {
	return a.definitions.Apiextensions().V1().CustomResourceDefinitions().Informer()
}

func (a *APIs) apiServiceInformer() cache.SharedIndexInformer {
	return a.registration.Apiregistration().V1().APIServices().Informer()
}

// Run runs the informers until ctx is done.
func (a *APIs) Run(ctx context.Context) {
	a.definitions.StartWithContext(ctx)
	a.registration.StartWithContext(ctx)
	<-ctx.Done()
	a.definitions.Shutdown()
	a.registration.Shutdown()
}

// HasSynced reports whether the APIs of the main cluster are known.
func (a *APIs) HasSynced() bool {
	return a.definitionInformer().HasSynced() && a.apiServiceInformer().HasSynced()
}

// Defines returns the resources of a version that definitions of the main cluster
// serve, by their plural names.
func (a *APIs) Defines(version schema.GroupVersion) sets.Set[string] {
	defined := sets.New[string]()
	// A lister reads memory and cannot fail.
	all, _ := a.definitions.Apiextensions().V1().CustomResourceDefinitions().Lister().List(labels.Everything())
	for _, definition := range all {
		if definition.Spec.Group == version.Group && apiextensionshelpers.HasServedCRDVersion(definition, version.Version) &&
			apiextensionshelpers.IsCRDConditionTrue(definition, apiextensionsv1.Established) {
			defined.Insert(definition.Spec.Names.Plural)
		}
	}
	return defined
}

// PublishedElsewhere reports whether the main cluster sends requests for a version to a
// server other than annex, itself included.
func (a *APIs) PublishedElsewhere(version schema.GroupVersion) bool {
	apiService, err := a.registration.Apiregistration().V1().APIServices().Lister().Get(version.Version + "." + version.Group)
	if err != nil {
		// It does not exist: a lister reads memory and fails for no other reason.
		return false
	}
	service := apiService.Spec.Service
	return service == nil || service.Namespace != a.service.Namespace || service.Name != a.service.Name
}

// bareDefinition drops the schemas, which are large.
func bareDefinition(obj any) (any, error) {
	definition, ok := obj.(*apiextensionsv1.CustomResourceDefinition)
	if !ok {
		return obj, nil
	}
	bare := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: bareMeta(definition.ObjectMeta)}
	bare.Spec.Group, bare.Spec.Names.Plural = definition.Spec.Group, definition.Spec.Names.Plural
	for _, version := range definition.Spec.Versions {
		bare.Spec.Versions = append(bare.Spec.Versions, apiextensionsv1.CustomResourceDefinitionVersion{Name: version.Name, Served: version.Served})
	}
	bare.Status.Conditions = definition.Status.Conditions
	return bare, nil
}

// bareAPIService drops the CA bundle, which all APIServices have.
func bareAPIService(obj any) (any, error) {
	apiService, ok := obj.(*apiregistrationv1.APIService)
	if !ok {
		return obj, nil
	}
	bare := &apiregistrationv1.APIService{ObjectMeta: bareMeta(apiService.ObjectMeta)}
	bare.Spec.Service = apiService.Spec.Service
	return bare, nil
}

func bareMeta(meta metav1.ObjectMeta) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: meta.Name, UID: meta.UID, ResourceVersion: meta.ResourceVersion}
}
