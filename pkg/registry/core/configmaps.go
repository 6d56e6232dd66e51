// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package core

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/annex-dev/annex/pkg/apis/core/validation"
	"github.com/annex-dev/annex/pkg/registry/typed"
	"github.com/annex-dev/annex/pkg/table"
)

var configMaps = typed.Resource{
	Kind:       corev1.SchemeGroupVersion.WithKind("ConfigMap"),
	ShortNames: []string{"cm"},
	Strategy:   typed.Validated(typed.Namespaced, validation.ValidateConfigMap, validation.ValidateConfigMapUpdate),
	Table: table.New(corev1.Resource("configmaps"),
		table.Name[*corev1.ConfigMap](),
		table.Column[*corev1.ConfigMap]{
			Name:        "Data",
			Type:        "integer",
			Description: corev1.ConfigMap{}.SwaggerDoc()["data"],
			Value:       func(object *corev1.ConfigMap) any { return int64(len(object.Data) + len(object.BinaryData)) },
		},
		table.Age[*corev1.ConfigMap](),
	),
}
