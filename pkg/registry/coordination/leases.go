// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package coordination is the REST storage of coordination.k8s.io.
package coordination

import (
	"context"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/features"
	"k8s.io/apiserver/pkg/registry/generic"
	genericapiserver "k8s.io/apiserver/pkg/server"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/utils/ptr"

	"github.com/annex-dev/annex/pkg/registry/typed"
	"github.com/annex-dev/annex/pkg/table"
)

// NewGroup creates the storage of coordination.k8s.io.
func NewGroup(getter generic.RESTOptionsGetter) (genericapiserver.APIGroupInfo, error) {
	return typed.NewGroup(coordinationv1.SchemeGroupVersion, getter, leases)
}

var leases = typed.Resource{
	Kind: coordinationv1.SchemeGroupVersion.WithKind("Lease"),
	// A holder may renew a deleted Lease, but not overwrite another holder's.
	Strategy: leaseStrategy{typed.Validated(typed.Namespaced.CreatingOnUpdate().RequiringVersion(), validateLease, validateLeaseUpdate)},
	Table: table.New(coordinationv1.Resource("leases"),
		table.Name[*coordinationv1.Lease](),
		table.Column[*coordinationv1.Lease]{
			Name:        "Holder",
			Description: coordinationv1.LeaseSpec{}.SwaggerDoc()["holderIdentity"],
			Value:       func(lease *coordinationv1.Lease) any { return ptr.Deref(lease.Spec.HolderIdentity, "") },
		},
		table.Age[*coordinationv1.Lease](),
	),
}

type leaseStrategy struct {
	typed.ValidatedStrategy[*coordinationv1.Lease]
}

func (leaseStrategy) PrepareForCreate(_ context.Context, obj runtime.Object) {
	dropDisabledFields(&obj.(*coordinationv1.Lease).Spec, &coordinationv1.LeaseSpec{})
}

func (leaseStrategy) PrepareForUpdate(_ context.Context, obj, old runtime.Object) {
	dropDisabledFields(&obj.(*coordinationv1.Lease).Spec, &old.(*coordinationv1.Lease).Spec)
}

// dropDisabledFields removes the fields of coordinated leader election while the feature
// is disabled, unless they are stored already.
func dropDisabledFields(spec, stored *coordinationv1.LeaseSpec) {
	if utilfeature.DefaultFeatureGate.Enabled(features.CoordinatedLeaderElection) {
		return
	}
	if stored.Strategy == nil {
		spec.Strategy = nil
	}
	if stored.PreferredHolder == nil {
		spec.PreferredHolder = nil
	}
}
