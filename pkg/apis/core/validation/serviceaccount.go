// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package validation

import (
	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	metavalidation "github.com/annex-dev/annex/pkg/apis/meta/validation"
)

// ValidateServiceAccount checks a new service account.
func ValidateServiceAccount(serviceAccount *corev1.ServiceAccount) field.ErrorList {
	return metavalidation.ValidateObjectMeta(&serviceAccount.ObjectMeta, true, apivalidation.ValidateServiceAccountName)
}

// ValidateServiceAccountUpdate checks an update of a service account.
func ValidateServiceAccountUpdate(newServiceAccount, oldServiceAccount *corev1.ServiceAccount) field.ErrorList {
	errs := metavalidation.ValidateObjectMetaUpdate(&newServiceAccount.ObjectMeta, &oldServiceAccount.ObjectMeta)
	return append(errs, ValidateServiceAccount(newServiceAccount)...)
}
