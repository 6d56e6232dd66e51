// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package namespace

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	apiextensionshelpers "k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// errNothingDiscovered is what discovery without any resource is taken for.
var errNothingDiscovered = errors.New("discovery lists no namespaced resources")

// definition shortens the type's name in signatures.
type definition = apiextensionsv1.CustomResourceDefinition

// resource is one kind of content, with what can be done to empty it.
type resource struct {
	gvr              schema.GroupVersionResource
	list             bool
	delete           bool
	deleteCollection bool
}

// resourcesToDelete returns, in a stable order, the resources whose objects have
// to be deleted with their namespace: those that discovery lists and, besides,
// every custom resource that it should list and does not.
func resourcesToDelete(lists []*metav1.APIResourceList, definitions []*definition) ([]resource, []error) {
	var failed []error
	found := map[schema.GroupResource]resource{}
	for _, list := range lists {
		groupVersion, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			failed = append(failed, fmt.Errorf("parse group version %q from discovery: %w", list.GroupVersion, err))
			continue
		}
		for i := range list.APIResources {
			if item, ok := fromDiscovery(groupVersion, &list.APIResources[i]); ok {
				found[item.gvr.GroupResource()] = item
			}
		}
	}
	for _, crd := range definitions {
		item, ok := fromDefinition(crd)
		if !ok {
			continue
		}
		if _, listed := found[item.gvr.GroupResource()]; !listed {
			found[item.gvr.GroupResource()] = item
		}
	}
	resources := make([]resource, 0, len(found))
	for _, item := range found {
		resources = append(resources, item)
	}
	slices.SortFunc(resources, func(a, b resource) int {
		return cmp.Or(strings.Compare(a.gvr.Group, b.gvr.Group), strings.Compare(a.gvr.Resource, b.gvr.Resource))
	})
	return resources, failed
}

// fromDiscovery returns what an entry of discovery says, and false if the entry
// holds nothing that could be deleted.
func fromDiscovery(groupVersion schema.GroupVersion, entry *metav1.APIResource) (resource, bool) {
	if !entry.Namespaced || strings.Contains(entry.Name, "/") {
		return resource{}, false
	}
	item := resource{
		gvr:              groupVersion.WithResource(entry.Name),
		list:             slices.Contains(entry.Verbs, "list"),
		delete:           slices.Contains(entry.Verbs, "delete"),
		deleteCollection: slices.Contains(entry.Verbs, "deletecollection"),
	}
	return item, item.delete || item.deleteCollection
}

// fromDefinition returns the resource that a definition adds to the server, and
// false if that has no objects in namespaces, or none that can be reached
// because it was never established or no version of it is served.
func fromDefinition(crd *definition) (resource, bool) {
	// The same rule as that by which the apiextensions server serves it.
	served := apiextensionshelpers.IsCRDConditionTrue(crd, apiextensionsv1.Established) ||
		apiextensionshelpers.IsCRDConditionTrue(crd, apiextensionsv1.NamesAccepted)
	if !served || crd.Spec.Scope != apiextensionsv1.NamespaceScoped {
		return resource{}, false
	}
	version := ""
	for i := range crd.Spec.Versions {
		if candidate := &crd.Spec.Versions[i]; candidate.Served && (version == "" || candidate.Storage) {
			version = candidate.Name
		}
	}
	if version == "" {
		return resource{}, false
	}
	// The apiextensions server serves every verb for every custom resource.
	return resource{
		gvr:              schema.GroupVersionResource{Group: crd.Spec.Group, Version: version, Resource: crd.Spec.Names.Plural},
		list:             true,
		delete:           true,
		deleteCollection: true,
	}, true
}
