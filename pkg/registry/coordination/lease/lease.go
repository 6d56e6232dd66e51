// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package lease is the REST storage of Leases.
package lease

import (
	"context"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/features"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/utils/ptr"

	"github.com/annex-dev/annex/pkg/apis/coordination/validation"
	"github.com/annex-dev/annex/pkg/registry/table"
	"github.com/annex-dev/annex/pkg/registry/typed"
)

// Resource describes Leases.
func Resource(typer runtime.ObjectTyper) typed.Resource {
	return typed.Resource{
		Kind:     coordinationv1.SchemeGroupVersion.WithKind("Lease"),
		Strategy: strategy{typed.Validated(typed.Namespaced(typer), validation.ValidateLease, validation.ValidateLeaseUpdate)},
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
}

type strategy struct {
	typed.ValidatedStrategy[*coordinationv1.Lease]
}

func (strategy) PrepareForCreate(_ context.Context, obj runtime.Object) {
	dropDisabledFields(&obj.(*coordinationv1.Lease).Spec, &coordinationv1.LeaseSpec{})
}

// AllowCreateOnUpdate lets a holder renew a deleted Lease.
func (strategy) AllowCreateOnUpdate(context.Context) bool { return true }

// AllowUnconditionalUpdate is false: holders must not overwrite each other.
func (strategy) AllowUnconditionalUpdate(context.Context) bool { return false }

func (strategy) PrepareForUpdate(_ context.Context, obj, old runtime.Object) {
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
