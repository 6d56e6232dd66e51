// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package configmap is the REST storage of ConfigMaps.
package configmap

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/annex-dev/annex/pkg/apis/core/validation"
	"github.com/annex-dev/annex/pkg/registry/table"
	"github.com/annex-dev/annex/pkg/registry/typed"
)

// Resource describes ConfigMaps.
func Resource(typer runtime.ObjectTyper) typed.Resource {
	return typed.Resource{
		Kind:       corev1.SchemeGroupVersion.WithKind("ConfigMap"),
		ShortNames: []string{"cm"},
		Strategy:   newStrategy(typer),
		Table:      tableConvertor,
	}
}

func newStrategy(typer runtime.ObjectTyper) typed.ValidatedStrategy[*corev1.ConfigMap] {
	return typed.Validated(typed.Namespaced(typer), validation.ValidateConfigMap, validation.ValidateConfigMapUpdate)
}

var tableConvertor = table.New(corev1.Resource("configmaps"),
	table.Name[*corev1.ConfigMap](),
	table.Column[*corev1.ConfigMap]{
		Name:        "Data",
		Type:        "integer",
		Description: corev1.ConfigMap{}.SwaggerDoc()["data"],
		Value:       func(object *corev1.ConfigMap) any { return int64(len(object.Data) + len(object.BinaryData)) },
	},
	table.Age[*corev1.ConfigMap](),
)
