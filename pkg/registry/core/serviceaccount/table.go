// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package serviceaccount

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/annex-dev/annex/pkg/registry/table"
)

var tableConvertor = table.New(corev1.Resource("serviceaccounts"),
	table.Name[*corev1.ServiceAccount](),
	table.Age[*corev1.ServiceAccount](),
)
