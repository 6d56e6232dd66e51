// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package secret

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/annex-dev/annex/pkg/registry/table"
)

var tableConvertor = table.New(corev1.Resource("secrets"),
	table.Name[*corev1.Secret](),
	table.Column[*corev1.Secret]{
		Name:        "Type",
		Description: corev1.Secret{}.SwaggerDoc()["type"],
		Value:       func(secret *corev1.Secret) any { return string(secret.Type) },
	},
	table.Column[*corev1.Secret]{
		Name:        "Data",
		Type:        "integer",
		Description: corev1.Secret{}.SwaggerDoc()["data"],
		Value:       func(secret *corev1.Secret) any { return int64(len(secret.Data)) },
	},
	table.Age[*corev1.Secret](),
)
