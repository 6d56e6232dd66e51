// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package scheme

import (
	"math/rand"
	"testing"

	"k8s.io/apimachinery/pkg/api/apitesting/fuzzer"
	"k8s.io/apimachinery/pkg/api/apitesting/roundtrip"
	metafuzzer "k8s.io/apimachinery/pkg/apis/meta/fuzzer"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"sigs.k8s.io/randfill"

	annexadmissionregistrationv1 "github.com/annex-dev/annex/pkg/apis/admissionregistration/v1"
	annexauthenticationv1 "github.com/annex-dev/annex/pkg/apis/authentication/v1"
	annexcorev1 "github.com/annex-dev/annex/pkg/apis/core/v1"
	annexflowcontrolv1 "github.com/annex-dev/annex/pkg/apis/flowcontrol/v1"
	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	annexrbacv1 "github.com/annex-dev/annex/pkg/apis/rbac/v1"
)

// defaulted returns a fuzzer that fills objects with what decoding would have made of them.
func defaulted[T any](setDefaults func(*T)) any {
	return func(object *T, c randfill.Continue) {
		c.FillNoCustom(object)
		setDefaults(object)
	}
}

// fuzzers has the defaults of every kind that has some.
func fuzzers(serializer.CodecFactory) []any {
	return []any{
		defaulted(annexadmissionregistrationv1.SetDefaultsValidatingWebhookConfiguration),
		defaulted(annexadmissionregistrationv1.SetDefaultsMutatingWebhookConfiguration),
		defaulted(annexadmissionregistrationv1.SetDefaultsValidatingAdmissionPolicy),
		defaulted(annexadmissionregistrationv1.SetDefaultsValidatingAdmissionPolicyBinding),
		defaulted(annexadmissionregistrationv1.SetDefaultsMutatingAdmissionPolicy),
		defaulted(annexadmissionregistrationv1.SetDefaultsMutatingAdmissionPolicyBinding),
		defaulted(annexauthenticationv1.SetDefaultsTokenRequest),
		defaulted(annexcorev1.SetDefaultsNamespace),
		defaulted(annexcorev1.SetDefaultsSecret),
		defaulted(annexflowcontrolv1.SetDefaultsFlowSchema),
		defaulted(annexflowcontrolv1.SetDefaultsPriorityLevelConfiguration),
		defaulted(hostingv1alpha1.SetObjectDefaults_HostedResource),
		defaulted(hostingv1alpha1.SetObjectDefaults_InjectionProfile),
		defaulted(hostingv1alpha1.SetObjectDefaults_Migration),
		defaulted(hostingv1alpha1.SetObjectDefaults_Store),
		defaulted(annexrbacv1.SetDefaultsRoleBinding),
		defaulted(annexrbacv1.SetDefaultsClusterRoleBinding),
	}
}

// Internal objects are filled at random, field by field, and must come back the same from
// JSON and protobuf of their version.
func TestRoundTrip(t *testing.T) {
	t.Parallel()
	filler := fuzzer.FuzzerFor(fuzzer.MergeFuzzerFuncs(metafuzzer.Funcs, fuzzers), rand.NewSource(rand.Int63()), Codecs)
	roundtrip.RoundTripTypes(t, Scheme, Codecs, filler, nil)
}
