// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package clusterrole

import (
	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/annex-dev/annex/pkg/registry/table"
)

var tableConvertor = table.New(rbacv1.Resource("clusterroles"), table.Name[*rbacv1.ClusterRole](), table.CreatedAt[*rbacv1.ClusterRole]())
