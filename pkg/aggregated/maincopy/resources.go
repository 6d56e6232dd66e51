// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package maincopy

import (
	"context"
	"fmt"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
)

// Resource is a resource of a group that the main cluster defines.
type Resource struct {
	// Name is the name of its definition, "<plural>.<group>".
	Name string
	// Stored is the resource in the version in which the main cluster stores objects, and Served in one that it serves.
	// They are the same, so that reads need no conversion, unless Stored is not served.
	Stored, Served schema.GroupVersionResource
	// Kind of the objects.
	Kind string
	// Namespaced is set for objects in namespaces.
	Namespaced bool
}

// Opened is the resource in the version that reaches the main cluster's copy.
func (r Resource) Opened() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: r.Stored.Group, Version: hostingv1alpha1.MainCopyVersion, Resource: r.Stored.Resource}
}

// Resources returns the resources of a group that the main cluster defines, and what Open returns
// about them.
func (c *Copy) Resources(ctx context.Context, group string) ([]Resource, error) {
	definitions, err := c.Definitions(ctx, group)
	if err != nil {
		return nil, err
	}
	resources := make([]Resource, 0, len(definitions))
	for _, definition := range definitions {
		resources = append(resources, ResourceOf(definition))
	}
	return resources, nil
}

// Definitions returns the definitions of a group in the main cluster, by name. Other groups' schemas may have many
// megabytes, so it reads their names only.
func (c *Copy) Definitions(ctx context.Context, group string) ([]*apiextensionsv1.CustomResourceDefinition, error) {
	all, err := c.metadata.Resource(definitionsResource).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list the names of the main cluster's definitions: %w", err)
	}
	var of []*apiextensionsv1.CustomResourceDefinition
	for i := range all.Items {
		name := all.Items[i].Name
		if schema.ParseGroupResource(name).Group != group {
			continue
		}
		definition, err := c.definitions.Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			continue // deleted since
		}
		if err != nil {
			return nil, fmt.Errorf("read definition %s of the main cluster: %w", name, err)
		}
		of = append(of, definition)
	}
	return of, nil
}

// ResourceOf returns the resource of a definition in the main cluster.
func ResourceOf(definition *apiextensionsv1.CustomResourceDefinition) Resource {
	of := schema.GroupVersionResource{Group: definition.Spec.Group, Resource: definition.Spec.Names.Plural}
	resource := Resource{
		Name: definition.Name, Stored: of, Served: of,
		Kind:       definition.Spec.Names.Kind,
		Namespaced: definition.Spec.Scope == apiextensionsv1.NamespaceScoped,
	}
	for _, version := range definition.Spec.Versions {
		if version.Storage {
			resource.Stored.Version = version.Name
		}
		if version.Served && (version.Storage || resource.Served.Version == "") {
			resource.Served.Version = version.Name
		}
	}
	return resource
}
