// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package metadatainformers

import (
	"fmt"
	"slices"
	"strings"

	apiextensionshelpers "k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// Resource is a resource whose objects are followed.
type Resource struct {
	// GroupVersionResource has the version in which the objects are read.
	schema.GroupVersionResource
	Kind       string
	Namespaced bool
}

// served is a resource and how else it is served.
type served struct {
	Resource
	versions []string
	// definition is the UID of the definition that a custom resource has.
	definition types.UID
}

// followable are the verbs without which objects can be neither followed nor
// collected.
var followable = []string{"list", "watch", "delete"}

// isIgnored reports whether a resource is left out: events are many, gone after an
// hour, and own and weigh nothing.
func isIgnored(resource schema.GroupResource) bool {
	return resource.Resource == "events" && (resource.Group == "" || resource.Group == "events.k8s.io")
}

// fromDiscovery returns what discovery lists and no definition defines, each in the
// version that is listed first.
func fromDiscovery(lists []*metav1.APIResourceList, defined map[schema.GroupResource]bool) (map[schema.GroupResource]served, error) {
	found := map[schema.GroupResource]served{}
	for _, list := range lists {
		groupVersion, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			return nil, fmt.Errorf("parse group version %q from discovery: %w", list.GroupVersion, err)
		}
		for i := range list.APIResources {
			entry := &list.APIResources[i]
			resource := groupVersion.WithResource(entry.Name)
			if strings.Contains(entry.Name, "/") || isIgnored(resource.GroupResource()) || defined[resource.GroupResource()] || !hasVerbs(entry.Verbs) {
				continue
			}
			item, known := found[resource.GroupResource()]
			if !known {
				item.Resource = Resource{GroupVersionResource: resource, Kind: entry.Kind, Namespaced: entry.Namespaced}
			}
			item.versions = append(item.versions, groupVersion.Version)
			found[resource.GroupResource()] = item
		}
	}
	return found, nil
}

func hasVerbs(verbs metav1.Verbs) bool {
	return !slices.ContainsFunc(followable, func(verb string) bool { return !slices.Contains(verbs, verb) })
}

// fromDefinition returns the resource that a definition adds to the server, and
// false if it adds none.
func fromDefinition(crd *apiextensionsv1.CustomResourceDefinition) (served, bool) {
	// The same rule as that by which the apiextensions server serves it.
	accepted := apiextensionshelpers.IsCRDConditionTrue(crd, apiextensionsv1.Established) ||
		apiextensionshelpers.IsCRDConditionTrue(crd, apiextensionsv1.NamesAccepted)
	if !accepted {
		return served{}, false
	}
	item := served{definition: crd.UID}
	read := ""
	for i := range crd.Spec.Versions {
		version := &crd.Spec.Versions[i]
		if !version.Served {
			continue
		}
		item.versions = append(item.versions, version.Name)
		if read == "" || version.Storage {
			read = version.Name
		}
	}
	// Names that are accepted stay, whatever the specification says by now.
	item.Resource = Resource{
		GroupVersionResource: schema.GroupVersionResource{Group: crd.Spec.Group, Version: read, Resource: crd.Spec.Names.Plural},
		Kind:                 crd.Status.AcceptedNames.Kind,
		Namespaced:           crd.Spec.Scope == apiextensionsv1.NamespaceScoped,
	}
	return item, read != ""
}

// definedBy are the resources that definitions name, served or not.
func definedBy(definitions []*apiextensionsv1.CustomResourceDefinition) map[schema.GroupResource]bool {
	defined := map[schema.GroupResource]bool{}
	for _, crd := range definitions {
		defined[schema.GroupResource{Group: crd.Spec.Group, Resource: crd.Spec.Names.Plural}] = true
	}
	return defined
}
