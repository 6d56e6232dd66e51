// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package lease

import (
	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/utils/ptr"

	"github.com/annex-dev/annex/pkg/registry/table"
)

var tableConvertor = table.New(coordinationv1.Resource("leases"),
	table.Name[*coordinationv1.Lease](),
	table.Column[*coordinationv1.Lease]{
		Name:        "Holder",
		Description: coordinationv1.LeaseSpec{}.SwaggerDoc()["holderIdentity"],
		Value:       func(lease *coordinationv1.Lease) any { return ptr.Deref(lease.Spec.HolderIdentity, "") },
	},
	table.Age[*coordinationv1.Lease](),
)
