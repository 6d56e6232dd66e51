// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	metavalidation "github.com/annex-dev/annex/pkg/apis/meta/validation"
)

var (
	roleRefPath  = field.NewPath("roleRef")
	subjectsPath = field.NewPath("subjects")
)

// ValidateRoleBinding checks a new role binding.
func ValidateRoleBinding(binding *rbacv1.RoleBinding) field.ErrorList {
	errs := metavalidation.ValidateObjectMeta(&binding.ObjectMeta, true, validateName)
	errs = append(errs, ValidateRoleRef(binding.RoleRef, true)...)
	return append(errs, validateSubjects(binding.Subjects, true)...)
}

// ValidateRoleBindingUpdate checks an update of a role binding.
func ValidateRoleBindingUpdate(newBinding, oldBinding *rbacv1.RoleBinding) field.ErrorList {
	return append(ValidateRoleBinding(newBinding), validateSameRole(newBinding.RoleRef, oldBinding.RoleRef)...)
}

// ValidateClusterRoleBinding checks a new cluster role binding.
func ValidateClusterRoleBinding(binding *rbacv1.ClusterRoleBinding) field.ErrorList {
	errs := metavalidation.ValidateObjectMeta(&binding.ObjectMeta, false, validateName)
	errs = append(errs, ValidateRoleRef(binding.RoleRef, false)...)
	return append(errs, validateSubjects(binding.Subjects, false)...)
}

// ValidateClusterRoleBindingUpdate checks an update of a cluster role binding.
func ValidateClusterRoleBindingUpdate(newBinding, oldBinding *rbacv1.ClusterRoleBinding) field.ErrorList {
	return append(ValidateClusterRoleBinding(newBinding), validateSameRole(newBinding.RoleRef, oldBinding.RoleRef)...)
}

// ValidateRoleRef validates the role of a binding.
func ValidateRoleRef(ref rbacv1.RoleRef, namespaced bool) field.ErrorList {
	var errs field.ErrorList
	if ref.APIGroup != rbacv1.GroupName {
		errs = append(errs, field.NotSupported(roleRefPath.Child("apiGroup"), ref.APIGroup, []string{rbacv1.GroupName}))
	}
	kinds := []string{"ClusterRole"}
	if namespaced {
		kinds = []string{"Role", "ClusterRole"}
	}
	if !slices.Contains(kinds, ref.Kind) {
		errs = append(errs, field.NotSupported(roleRefPath.Child("kind"), ref.Kind, kinds))
	}
	return append(errs, metavalidation.ValidateRequiredName(ref.Name, validateName, roleRefPath.Child("name"))...)
}

// validateSameRole makes the role immutable, so that the right to change subjects does
// not include the right to grant other roles.
func validateSameRole(newRef, oldRef rbacv1.RoleRef) field.ErrorList {
	return apivalidation.ValidateImmutableField(newRef, oldRef, roleRefPath)
}

func validateSubjects(subjects []rbacv1.Subject, namespaced bool) field.ErrorList {
	var errs field.ErrorList
	for i := range subjects {
		errs = append(errs, validateSubject(&subjects[i], namespaced, subjectsPath.Index(i))...)
	}
	return errs
}

func validateSubject(subject *rbacv1.Subject, namespaced bool, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if subject.Name == "" {
		errs = append(errs, field.Required(path.Child("name"), ""))
	}
	switch subject.Kind {
	case rbacv1.ServiceAccountKind:
		errs = append(errs, validateServiceAccount(subject, namespaced, path)...)
	case rbacv1.UserKind, rbacv1.GroupKind:
		if subject.APIGroup != rbacv1.GroupName {
			errs = append(errs, field.NotSupported(path.Child("apiGroup"), subject.APIGroup, []string{rbacv1.GroupName}))
		}
	default:
		kinds := []string{rbacv1.ServiceAccountKind, rbacv1.UserKind, rbacv1.GroupKind}
		errs = append(errs, field.NotSupported(path.Child("kind"), subject.Kind, kinds))
	}
	return errs
}

func validateServiceAccount(subject *rbacv1.Subject, namespaced bool, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if subject.Name != "" {
		errs = append(errs, metavalidation.Invalid(path.Child("name"), subject.Name, apivalidation.ValidateServiceAccountName(subject.Name, false))...)
	}
	if subject.APIGroup != "" {
		errs = append(errs, field.NotSupported(path.Child("apiGroup"), subject.APIGroup, []string{""}))
	}
	if !namespaced && subject.Namespace == "" {
		errs = append(errs, field.Required(path.Child("namespace"), ""))
	}
	return errs
}
