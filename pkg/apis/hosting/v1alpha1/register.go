// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupName is the name of annex's own API group.
const GroupName = "hosting.annex.dev"

// SchemeGroupVersion is the group and version of the types in this package.
var SchemeGroupVersion = schema.GroupVersion{Group: GroupName, Version: "v1alpha1"}

var (
	schemeBuilder = runtime.NewSchemeBuilder(addKnownTypes, RegisterDefaults, addFieldLabelConversions)

	// AddToScheme adds the types, defaults and field labels to a scheme.
	AddToScheme = schemeBuilder.AddToScheme
)

// Resource qualifies a resource with this group.
func Resource(resource string) schema.GroupResource {
	return SchemeGroupVersion.WithResource(resource).GroupResource()
}

func addKnownTypes(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(SchemeGroupVersion,
		&Store{},
		&StoreList{},
		&HostedResource{},
		&HostedResourceList{},
		&HostedResourceBinding{},
		&Migration{},
		&MigrationList{},
		&InjectionProfile{},
		&InjectionProfileList{},
		&StaticSource{},
		&StaticSourceList{},
	)
	metav1.AddToGroupVersion(scheme, SchemeGroupVersion)
	return nil
}
