// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package namespace

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/annex-dev/annex/pkg/registry/table"
)

var tableConvertor = table.New(corev1.Resource("namespaces"),
	table.Name[*corev1.Namespace](),
	table.Column[*corev1.Namespace]{
		Name:        "Status",
		Description: "The status of the namespace",
		Value:       func(namespace *corev1.Namespace) any { return string(namespace.Status.Phase) },
	},
	table.Age[*corev1.Namespace](),
)
