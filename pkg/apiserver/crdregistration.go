// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"fmt"
	"slices"

	apiextensionshelpers "k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	crdinformers "k8s.io/apiextensions-apiserver/pkg/client/informers/externalversions/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/tools/cache"
	"k8s.io/kube-aggregator/pkg/controllers/autoregister"

	"github.com/annex-dev/annex/pkg/apiserver/crd"
)

// crdRegistration registers an APIService for every group version that a CRD serves,
// and removes it with the last such CRD.
type crdRegistration struct {
	crds         cache.Indexer
	registration autoregister.AutoAPIServiceRegistration
	compiledIn   sets.Set[string]
}

// registerCRDs follows the CRDs. It returns a function that reports whether every CRD
// that existed at the start is registered.
func registerCRDs(crds crdinformers.CustomResourceDefinitionInformer, registration autoregister.AutoAPIServiceRegistration) (cache.InformerSynced, error) {
	c := &crdRegistration{crds: crds.Informer().GetIndexer(), registration: registration, compiledIn: CompiledInGroups()}
	handler, err := crds.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: c.add,
		UpdateFunc: func(old, updated any) {
			// An update may remove a version.
			c.remove(old)
			c.add(updated)
		},
		DeleteFunc: c.remove,
	})
	if err != nil {
		return nil, fmt.Errorf("watch CRDs: %w", err)
	}
	return handler.HasSynced, nil
}

// add registers the served versions of a CRD. If they are outdated, another event
// follows.
func (c *crdRegistration) add(obj any) {
	for version, served := range c.versions(obj) {
		if served {
			c.registration.AddAPIServiceToSync(newAPIService(version, crdPriority))
		}
	}
}

// remove removes the versions of a previous state of a CRD that no CRD serves now.
func (c *crdRegistration) remove(obj any) {
	for version := range c.versions(obj) {
		if !c.isServed(version) {
			c.registration.RemoveAPIServiceToSync(newAPIService(version, crdPriority).Name)
		}
	}
}

// versions returns the versions of a CRD, and whether the CRD serves them.
func (c *crdRegistration) versions(obj any) map[schema.GroupVersion]bool {
	if tombstone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = tombstone.Obj
	}
	crd, ok := obj.(*apiextensionsv1.CustomResourceDefinition)
	if !ok || c.compiledIn.Has(crd.Spec.Group) {
		// Admission rejects the second. One that was stored before must not replace the
		// APIService of the group, nor remove it when it is deleted.
		return nil
	}
	versions := map[schema.GroupVersion]bool{}
	for _, version := range crd.Spec.Versions {
		versions[schema.GroupVersion{Group: crd.Spec.Group, Version: version.Name}] = version.Served
	}
	return versions
}

func (c *crdRegistration) isServed(version schema.GroupVersion) bool {
	// The index exists, and reading memory cannot fail.
	crds, _ := c.crds.ByIndex(crd.ByGroup, version.Group)
	return slices.ContainsFunc(crds, func(obj any) bool {
		crd, ok := obj.(*apiextensionsv1.CustomResourceDefinition)
		return ok && apiextensionshelpers.HasServedCRDVersion(crd, version.Version)
	})
}
