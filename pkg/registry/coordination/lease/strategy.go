// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package lease is the REST storage of leases.
package lease

import (
	"context"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/features"
	utilfeature "k8s.io/apiserver/pkg/util/feature"

	"github.com/annex-dev/annex/pkg/apis/coordination/validation"
	"github.com/annex-dev/annex/pkg/registry/typed"
)

type strategy struct {
	typed.BaseStrategy
}

func (strategy) PrepareForCreate(_ context.Context, obj runtime.Object) {
	dropDisabledFields(&obj.(*coordinationv1.Lease).Spec, &coordinationv1.LeaseSpec{})
}

func (strategy) Validate(_ context.Context, obj runtime.Object) field.ErrorList {
	return validation.ValidateLease(obj.(*coordinationv1.Lease))
}

// AllowCreateOnUpdate lets a holder renew a lease that somebody has deleted.
func (strategy) AllowCreateOnUpdate(context.Context) bool { return true }

// AllowUnconditionalUpdate is false: two holders must not overwrite each other.
func (strategy) AllowUnconditionalUpdate(context.Context) bool { return false }

func (strategy) PrepareForUpdate(_ context.Context, obj, old runtime.Object) {
	dropDisabledFields(&obj.(*coordinationv1.Lease).Spec, &old.(*coordinationv1.Lease).Spec)
}

func (strategy) ValidateUpdate(_ context.Context, obj, old runtime.Object) field.ErrorList {
	return validation.ValidateLeaseUpdate(obj.(*coordinationv1.Lease), old.(*coordinationv1.Lease))
}

// dropDisabledFields removes the fields of coordinated leader election while the
// feature is off, unless they are stored already.
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
