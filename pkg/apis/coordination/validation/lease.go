// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package validation validates objects of coordination.k8s.io, with the messages of
// Kubernetes.
package validation

import (
	"strings"

	coordinationv1 "k8s.io/api/coordination/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

var (
	metadataPath = field.NewPath("metadata")
	specPath     = field.NewPath("spec")
)

// ValidateLease checks a new lease.
func ValidateLease(lease *coordinationv1.Lease) field.ErrorList {
	errs := apivalidation.ValidateObjectMeta(&lease.ObjectMeta, true, apivalidation.NameIsDNSSubdomain, metadataPath)
	return append(errs, validateLeaseSpec(&lease.Spec)...)
}

// ValidateLeaseUpdate checks an update of a lease.
func ValidateLeaseUpdate(newLease, oldLease *coordinationv1.Lease) field.ErrorList {
	errs := apivalidation.ValidateObjectMetaUpdate(&newLease.ObjectMeta, &oldLease.ObjectMeta, metadataPath)
	return append(errs, validateLeaseSpec(&newLease.Spec)...)
}

func validateLeaseSpec(spec *coordinationv1.LeaseSpec) field.ErrorList {
	var errs field.ErrorList
	if seconds := spec.LeaseDurationSeconds; seconds != nil && *seconds <= 0 {
		errs = append(errs, field.Invalid(specPath.Child("leaseDurationSeconds"), *seconds, "must be greater than 0"))
	}
	if transitions := spec.LeaseTransitions; transitions != nil && *transitions < 0 {
		errs = append(errs, field.Invalid(specPath.Child("leaseTransitions"), *transitions, "must be greater than or equal to 0"))
	}
	strategy := coordinationv1.CoordinatedLeaseStrategy("")
	if spec.Strategy != nil {
		strategy = *spec.Strategy
		errs = append(errs, validateLeaseStrategy(strategy, specPath.Child("strategy"))...)
	}
	if spec.PreferredHolder != nil && *spec.PreferredHolder != "" && strategy == "" {
		errs = append(errs, field.Forbidden(specPath.Child("preferredHolder"), "may only be specified if `strategy` is defined"))
	}
	return errs
}

// validateLeaseStrategy accepts the strategy of Kubernetes, or another qualified name.
func validateLeaseStrategy(strategy coordinationv1.CoordinatedLeaseStrategy, path *field.Path) field.ErrorList {
	if !strings.Contains(string(strategy), "/") {
		if strategy != coordinationv1.OldestEmulationVersion {
			return field.ErrorList{field.NotSupported(path, strategy, []coordinationv1.CoordinatedLeaseStrategy{coordinationv1.OldestEmulationVersion})}
		}
		return nil
	}
	var errs field.ErrorList
	for _, message := range validation.IsQualifiedName(string(strategy)) {
		errs = append(errs, field.Invalid(path, strategy, message))
	}
	return errs
}
