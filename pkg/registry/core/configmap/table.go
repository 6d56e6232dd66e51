// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package configmap

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/annex-dev/annex/pkg/registry/table"
)

var tableConvertor = table.New(corev1.Resource("configmaps"),
	table.Name[*corev1.ConfigMap](),
	table.Column[*corev1.ConfigMap]{
		Name:        "Data",
		Type:        "integer",
		Description: corev1.ConfigMap{}.SwaggerDoc()["data"],
		Value: func(configMap *corev1.ConfigMap) any {
			return int64(len(configMap.Data) + len(configMap.BinaryData))
		},
	},
	table.Age[*corev1.ConfigMap](),
)
