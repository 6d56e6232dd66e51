// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package validation

import (
	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	metavalidation "github.com/annex-dev/annex/pkg/apis/meta/validation"
)

// ValidateServiceAccount validates a ServiceAccount.
func ValidateServiceAccount(serviceAccount *corev1.ServiceAccount) field.ErrorList {
	return metavalidation.ValidateObjectMeta(&serviceAccount.ObjectMeta, true, apivalidation.ValidateServiceAccountName)
}
