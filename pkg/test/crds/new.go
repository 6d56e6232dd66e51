// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package crds

import (
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// New returns a CRD of namespaced objects that may have any fields. All versions are served, and
// the first is stored.
func New(group, plural string, versions ...string) *apiextensionsv1.CustomResourceDefinition {
	crd := &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: plural + "." + group},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: group,
			Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: plural, Kind: strings.ToUpper(plural[:1]) + strings.TrimSuffix(plural[1:], "s")},
		},
	}
	for i, version := range versions {
		crd.Spec.Versions = append(crd.Spec.Versions, NewVersion(version, i == 0, &apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: new(true)}))
	}
	return crd
}

// Established returns a CRD with the status of one that is served.
func Established(crd *apiextensionsv1.CustomResourceDefinition) *apiextensionsv1.CustomResourceDefinition {
	crd.Status.AcceptedNames = crd.Spec.Names
	crd.Status.Conditions = []apiextensionsv1.CustomResourceDefinitionCondition{{Type: apiextensionsv1.Established, Status: apiextensionsv1.ConditionTrue}}
	return crd
}

// NewVersion returns a served version of a CRD.
func NewVersion(name string, stored bool, schema *apiextensionsv1.JSONSchemaProps) apiextensionsv1.CustomResourceDefinitionVersion {
	return apiextensionsv1.CustomResourceDefinitionVersion{
		Name: name, Served: true, Storage: stored,
		Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: schema},
	}
}
