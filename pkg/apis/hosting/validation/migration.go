// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"slices"

	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	metavalidation "github.com/annex-dev/annex/pkg/apis/meta/validation"
)

var (
	migrationOperations = sets.New(hostingv1alpha1.MigrationMove, hostingv1alpha1.MigrationRollback, hostingv1alpha1.MigrationFinalize)

	migrationSwitches = sets.New(hostingv1alpha1.MigrationSwitchAutomatic, hostingv1alpha1.MigrationSwitchManual)

	migrationPhases = sets.New(
		hostingv1alpha1.MigrationPending, hostingv1alpha1.MigrationCopying, hostingv1alpha1.MigrationFollowing,
		hostingv1alpha1.MigrationVerifying, hostingv1alpha1.MigrationSwitching, hostingv1alpha1.MigrationObserving,
		hostingv1alpha1.MigrationCleaning,
		hostingv1alpha1.MigrationCompleted, hostingv1alpha1.MigrationFailed, hostingv1alpha1.MigrationCanceled,
	)
)

// ValidateMigration checks a new Migration.
func ValidateMigration(migration *hostingv1alpha1.Migration) field.ErrorList {
	errs := apivalidation.ValidateObjectMeta(&migration.ObjectMeta, false, apivalidation.NameIsDNSSubdomain, field.NewPath("metadata"))
	return append(errs, validateMigrationSpec(&migration.Spec, field.NewPath("spec"))...)
}

// ValidateMigrationUpdate checks an update of a Migration's spec and metadata.
func ValidateMigrationUpdate(newMigration, oldMigration *hostingv1alpha1.Migration) field.ErrorList {
	errs := validateMigrationSpec(&newMigration.Spec, field.NewPath("spec"))
	if removed := slices.Contains(oldMigration.Finalizers, hostingv1alpha1.MigrationFinalizer) &&
		!slices.Contains(newMigration.Finalizers, hostingv1alpha1.MigrationFinalizer); removed && !newMigration.Status.Phase.Finished() {
		errs = append(errs, field.Forbidden(field.NewPath("metadata", "finalizers"), hostingv1alpha1.MigrationFinalizer+" cannot be removed before the Migration is finished: a part of the objects would stay in a Store"))
	}
	unchanged := newMigration.Spec
	unchanged.Confirmed = oldMigration.Spec.Confirmed
	unchanged.ExemptWebhooks = oldMigration.Spec.ExemptWebhooks
	unchanged.TTLSecondsAfterFinished = oldMigration.Spec.TTLSecondsAfterFinished
	return append(errs, apivalidation.ValidateImmutableField(unchanged, oldMigration.Spec, field.NewPath("spec"))...)
}

// ValidateMigrationStatusUpdate checks an update of a Migration's status.
func ValidateMigrationStatusUpdate(newMigration, oldMigration *hostingv1alpha1.Migration) field.ErrorList {
	status, path := &newMigration.Status, field.NewPath("status")
	errs := validateEnum(status.Phase, migrationPhases, path.Child("phase"))
	if was := oldMigration.Status.Phase; was.Finished() {
		errs = append(errs, apivalidation.ValidateImmutableField(status.Phase, was, path.Child("phase"))...)
	}
	errs = append(errs, metav1validation.ValidateConditions(status.Conditions, path.Child("conditions"))...)
	errs = append(errs, apivalidation.ValidateNonnegativeField(status.Objects, path.Child("objects"))...)
	errs = append(errs, apivalidation.ValidateNonnegativeField(status.CopiedObjects, path.Child("copiedObjects"))...)
	errs = append(errs, apivalidation.ValidateNonnegativeField(status.CopiedBytes, path.Child("copiedBytes"))...)
	if status.Lag != nil {
		errs = append(errs, apivalidation.ValidateNonnegativeField(*status.Lag, path.Child("lag"))...)
	}
	return errs
}

func validateMigrationSpec(spec *hostingv1alpha1.MigrationSpec, path *field.Path) field.ErrorList {
	errs := validateMoved(spec, path)
	errs = append(errs, validateEnum(spec.Switch, migrationSwitches, path.Child("switch"))...)
	errs = append(errs, apivalidation.ValidateNonnegativeField(int64(spec.ObjectsPerSecond), path.Child("objectsPerSecond"))...)
	if ttl := spec.TTLSecondsAfterFinished; ttl != nil {
		errs = append(errs, apivalidation.ValidateNonnegativeField(int64(*ttl), path.Child("ttlSecondsAfterFinished"))...)
	}
	return errs
}

// validateMoved checks what is moved where.
func validateMoved(spec *hostingv1alpha1.MigrationSpec, path *field.Path) field.ErrorList {
	if spec.Group == "" {
		errs := metavalidation.ValidateRequiredName(spec.Resource, validateHostedResourceName, path.Child("resource"))
		errs = append(errs, metavalidation.ValidateRequiredName(spec.StoreName, apivalidation.NameIsDNSSubdomain, path.Child("storeName"))...)
		if spec.Operation != "" {
			errs = append(errs, field.Invalid(path.Child("operation"), spec.Operation, "is for a group only"))
		}
		if spec.ExemptWebhooks {
			errs = append(errs, field.Invalid(path.Child("exemptWebhooks"), true, "is for a group only"))
		}
		return errs
	}
	errs := metavalidation.ValidateRequiredName(spec.Group, validateHostedGroup, path.Child("group"))
	if spec.Resource != "" {
		errs = append(errs, field.Invalid(path.Child("resource"), spec.Resource, "cannot be set together with group"))
	}
	errs = append(errs, validateEnum(spec.Operation, migrationOperations, path.Child("operation"))...)
	if spec.ExemptWebhooks && spec.Operation == hostingv1alpha1.MigrationFinalize {
		errs = append(errs, field.Invalid(path.Child("exemptWebhooks"), true, "is for Move and Rollback only"))
	}
	switch {
	case spec.StoreName == "":
	case spec.Operation != hostingv1alpha1.MigrationMove:
		errs = append(errs, field.Invalid(path.Child("storeName"), spec.StoreName, "is for Move only"))
	default:
		errs = append(errs, metavalidation.ValidateRequiredName(spec.StoreName, apivalidation.NameIsDNSSubdomain, path.Child("storeName"))...)
	}
	return errs
}

// validateHostedGroup accepts the groups whose resources annex may store.
func validateHostedGroup(group string, prefix bool) []string {
	return validateHostedResourceName("x."+group, prefix)
}
