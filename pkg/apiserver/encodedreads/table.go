// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package encodedreads

import (
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/annex-dev/annex/pkg/storage/encoded"
)

// columnsOf returns the columns of a version. Without any the age is shown, as upstream does
// (k8s.io/apiextensions-apiserver/pkg/apiserver/helpers.go).
func columnsOf(definition *apiextensionsv1.CustomResourceDefinition, version string) []apiextensionsv1.CustomResourceColumnDefinition {
	for i := range definition.Spec.Versions {
		if v := &definition.Spec.Versions[i]; v.Name == version && len(v.AdditionalPrinterColumns) > 0 {
			return v.AdditionalPrinterColumns
		}
	}
	return []apiextensionsv1.CustomResourceColumnDefinition{{
		Name: "Age", Type: "date", Description: metav1.ObjectMeta{}.SwaggerDoc()["creationTimestamp"], JSONPath: ".metadata.creationTimestamp",
	}}
}

// shown returns the parts of objects that columns show.
func shown(columns []apiextensionsv1.CustomResourceColumnDefinition) *encoded.Columns {
	paths := make([]string, len(columns))
	for i := range columns {
		paths[i] = columns[i].JSONPath
	}
	return encoded.NewColumns(paths)
}
