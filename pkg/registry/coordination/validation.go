// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package coordination

import (
	"strings"

	coordinationv1 "k8s.io/api/coordination/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	metavalidation "github.com/annex-dev/annex/pkg/apis/meta/validation"
)

var specPath = field.NewPath("spec")

// validateLease validates a Lease, with the messages of Kubernetes.
func validateLease(lease *coordinationv1.Lease) field.ErrorList {
	errs := apivalidation.ValidateObjectMeta(&lease.ObjectMeta, true, apivalidation.NameIsDNSSubdomain, field.NewPath("metadata"))
	return append(errs, validateLeaseSpec(&lease.Spec)...)
}

func validateLeaseUpdate(updated, _ *coordinationv1.Lease) field.ErrorList {
	return validateLeaseSpec(&updated.Spec)
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
	return metavalidation.Invalid(path, strategy, validation.IsQualifiedName(string(strategy)))
}
