// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package install adds the group admissionregistration.k8s.io to a scheme.
package install

import (
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"

	annexadmissionregistrationv1 "github.com/annex-dev/annex/pkg/apis/admissionregistration/v1"
)

// Install registers the group. One Go type is v1 and the internal type.
func Install(scheme *runtime.Scheme) {
	utilruntime.Must(annexadmissionregistrationv1.AddToScheme(scheme))
	scheme.AddKnownTypes(schema.GroupVersion{Group: admissionregistrationv1.GroupName, Version: runtime.APIVersionInternal},
		&admissionregistrationv1.ValidatingWebhookConfiguration{}, &admissionregistrationv1.ValidatingWebhookConfigurationList{},
		&admissionregistrationv1.MutatingWebhookConfiguration{}, &admissionregistrationv1.MutatingWebhookConfigurationList{},
		&admissionregistrationv1.ValidatingAdmissionPolicy{}, &admissionregistrationv1.ValidatingAdmissionPolicyList{},
		&admissionregistrationv1.ValidatingAdmissionPolicyBinding{}, &admissionregistrationv1.ValidatingAdmissionPolicyBindingList{},
		&admissionregistrationv1.MutatingAdmissionPolicy{}, &admissionregistrationv1.MutatingAdmissionPolicyList{},
		&admissionregistrationv1.MutatingAdmissionPolicyBinding{}, &admissionregistrationv1.MutatingAdmissionPolicyBindingList{},
	)
	utilruntime.Must(scheme.SetVersionPriority(admissionregistrationv1.SchemeGroupVersion))
}
