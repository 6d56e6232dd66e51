// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package crd

import (
	"fmt"
	"slices"
	"strings"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/apiserver/pkg/endpoints"
	"k8s.io/apiserver/pkg/endpoints/discovery"
)

var (
	allVerbs = metav1.Verbs{"delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"}
	// terminatingVerbs are allowed while a definition is being deleted.
	terminatingVerbs = metav1.Verbs{"delete", "deletecollection", "get", "list", "watch"}
	subresourceVerbs = metav1.Verbs{"get", "patch", "update"}
)

// documents has the documents of a group.
type documents struct {
	group    metav1.APIGroup
	versions map[string]*versionDocuments
}

// versionDocuments has the content of the document of a version, and its part of the aggregated document.
type versionDocuments struct {
	resources  []metav1.APIResource
	aggregated []apidiscoveryv2.APIResourceDiscovery
}

// newDocuments returns the documents of a group with its definitions, as
// k8s.io/apiextensions-apiserver/pkg/apiserver/customresource_discovery_controller.go builds them.
// It returns nil if nothing is served.
func newDocuments(group string, definitions []*apiextensionsv1.CustomResourceDefinition) (*documents, error) {
	d := &documents{versions: map[string]*versionDocuments{}}
	slices.SortFunc(definitions, func(a, b *apiextensionsv1.CustomResourceDefinition) int {
		return strings.Compare(a.Status.AcceptedNames.Plural, b.Status.AcceptedNames.Plural)
	})
	for _, crd := range definitions {
		if !apihelpers.IsCRDConditionTrue(crd, apiextensionsv1.Established) {
			continue
		}
		for i := range crd.Spec.Versions {
			served := &crd.Spec.Versions[i]
			if !served.Served {
				continue
			}
			if d.versions[served.Name] == nil {
				d.versions[served.Name] = &versionDocuments{}
			}
			if err := d.versions[served.Name].add(crd, served.Name); err != nil {
				return nil, fmt.Errorf("build the discovery documents of %s: %w", crd.Name, err)
			}
		}
	}
	if len(d.versions) == 0 {
		return nil, nil
	}
	d.group.Name = group
	for name := range d.versions {
		d.group.Versions = append(d.group.Versions, metav1.GroupVersionForDiscovery{GroupVersion: group + "/" + name, Version: name})
	}
	slices.SortFunc(d.group.Versions, func(a, b metav1.GroupVersionForDiscovery) int {
		return version.CompareKubeAwareVersionStrings(b.Version, a.Version)
	})
	d.group.PreferredVersion = d.group.Versions[0]
	return d, nil
}

// add adds a definition that serves the version.
func (d *versionDocuments) add(crd *apiextensionsv1.CustomResourceDefinition, version string) error {
	verbs := allVerbs
	if apihelpers.IsCRDConditionTrue(crd, apiextensionsv1.Terminating) {
		verbs = terminatingVerbs
	}
	names := &crd.Status.AcceptedNames
	resource := metav1.APIResource{
		Name: names.Plural, SingularName: names.Singular, Namespaced: crd.Spec.Scope == apiextensionsv1.NamespaceScoped, Kind: names.Kind, Verbs: verbs,
		ShortNames: names.ShortNames, Categories: names.Categories, StorageVersionHash: storageVersionHash(crd),
	}
	added := []metav1.APIResource{resource}
	subresources, err := apihelpers.GetSubresourcesForVersion(crd, version)
	if err != nil {
		return err
	}
	if subresources != nil && subresources.Status != nil {
		added = append(added, metav1.APIResource{
			Name: names.Plural + "/status", Namespaced: resource.Namespaced, Kind: names.Kind, Verbs: subresourceVerbs,
		})
	}
	if subresources != nil && subresources.Scale != nil {
		scale := autoscalingv1.SchemeGroupVersion.WithKind("Scale")
		added = append(added, metav1.APIResource{
			Group: scale.Group, Version: scale.Version, Kind: scale.Kind,
			Name: names.Plural + "/scale", Namespaced: resource.Namespaced, Verbs: subresourceVerbs,
		})
	}
	d.resources = append(d.resources, added...)
	for i := range added { // the aggregated document repeats the group and version
		if added[i].Group == "" {
			added[i].Group, added[i].Version = crd.Spec.Group, version
		}
	}
	aggregated, err := endpoints.ConvertGroupVersionIntoToDiscovery(added)
	d.aggregated = append(d.aggregated, aggregated...)
	return err
}

// storageVersionHash returns the hash of the version in which objects are stored, if that is served.
func storageVersionHash(crd *apiextensionsv1.CustomResourceDefinition) string {
	for i := range crd.Spec.Versions {
		if v := &crd.Spec.Versions[i]; v.Storage && v.Served {
			return discovery.StorageVersionHash(crd.Spec.Group, v.Name, crd.Spec.Names.Kind)
		}
	}
	return ""
}

// groupVersion returns a version of the group.
func (d *documents) groupVersion(version string) schema.GroupVersion {
	return schema.GroupVersion{Group: d.group.Name, Version: version}
}
