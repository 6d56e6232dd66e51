// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package validation_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/annex-dev/annex/pkg/apis/core/validation"
	"github.com/annex-dev/annex/pkg/test/expect"
)

func TestValidateSecret(t *testing.T) {
	t.Parallel()
	type data = map[string][]byte
	tests := []struct {
		name        string
		secretType  corev1.SecretType
		annotations map[string]string
		data        data
		want        []string
	}{
		{name: "opaque", secretType: corev1.SecretTypeOpaque, data: data{"a": nil}},
		{name: "someone else's type", secretType: "helm.sh/release.v1"},
		{name: "key", data: data{"a/b": nil}, want: []string{`data[a/b]: Invalid value: "a/b": a valid config key must consist`}},
		{name: "largest", data: data{"a": make([]byte, corev1.MaxSecretSize)}},
		{name: "too large", data: data{"a": make([]byte, corev1.MaxSecretSize), "b": {1}}, want: []string{"data: Too long: may not be more than 1048576 bytes"}},
		{
			name: "token", secretType: corev1.SecretTypeServiceAccountToken,
			annotations: map[string]string{corev1.ServiceAccountNameKey: "default"},
		},
		{
			name: "token without service account", secretType: corev1.SecretTypeServiceAccountToken,
			want: []string{"metadata.annotations[kubernetes.io/service-account.name]: Required value"},
		},
		{name: "dockercfg", secretType: corev1.SecretTypeDockercfg, data: data{".dockercfg": []byte("{}")}},
		{name: "no dockercfg", secretType: corev1.SecretTypeDockercfg, want: []string{"data[.dockercfg]: Required value"}},
		{name: "dockerconfigjson", secretType: corev1.SecretTypeDockerConfigJson, data: data{".dockerconfigjson": []byte(`{"auths":{}}`)}},
		{name: "no dockerconfigjson", secretType: corev1.SecretTypeDockerConfigJson, want: []string{"data[.dockerconfigjson]: Required value"}},
		{
			name: "broken dockerconfigjson", secretType: corev1.SecretTypeDockerConfigJson, data: data{".dockerconfigjson": []byte("pass")},
			want: []string{`data[.dockerconfigjson]: Invalid value: "<secret contents redacted>": invalid character 'p'`},
		},
		{name: "basic auth with username", secretType: corev1.SecretTypeBasicAuth, data: data{"username": nil}},
		{name: "basic auth with password", secretType: corev1.SecretTypeBasicAuth, data: data{"password": nil}},
		{
			name: "basic auth with neither", secretType: corev1.SecretTypeBasicAuth,
			want: []string{"data[username]: Required value", "data[password]: Required value"},
		},
		{name: "ssh", secretType: corev1.SecretTypeSSHAuth, data: data{"ssh-privatekey": []byte("k")}},
		{name: "empty ssh key", secretType: corev1.SecretTypeSSHAuth, data: data{"ssh-privatekey": nil}, want: []string{"data[ssh-privatekey]: Required value"}},
		{name: "tls", secretType: corev1.SecretTypeTLS, data: data{"tls.crt": nil, "tls.key": nil}},
		{name: "tls without anything", secretType: corev1.SecretTypeTLS, want: []string{"data[tls.crt]: Required value", "data[tls.key]: Required value"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			secret := &corev1.Secret{ObjectMeta: meta(), Type: test.secretType, Data: test.data}
			secret.Annotations = test.annotations
			expect.FieldErrors(t, validation.ValidateSecret(secret), test.want...)
		})
	}
}

func TestValidateSecretUpdate(t *testing.T) {
	t.Parallel()
	const immutable = ": Forbidden: field is immutable when `immutable` is set"
	tests := []struct {
		name      string
		immutable *bool
		mutate    func(*corev1.Secret)
		want      []string
	}{
		{name: "data", mutate: func(s *corev1.Secret) { s.Data["k"] = []byte("2") }},
		{
			name: "type", mutate: func(s *corev1.Secret) { s.Type = "b" },
			want: []string{`type: Invalid value: "b": field is immutable`},
		},
		{
			name: "immutable data", immutable: new(true), mutate: func(s *corev1.Secret) { s.Data["k"] = []byte("2") },
			want: []string{"data" + immutable},
		},
		{
			name: "immutable for good", immutable: new(true), mutate: func(s *corev1.Secret) { s.Immutable = new(false) },
			want: []string{"immutable" + immutable},
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			oldSecret := &corev1.Secret{
				ObjectMeta: meta(), Type: "a", Immutable: test.immutable, Data: map[string][]byte{"k": []byte("1")},
			}
			newSecret := oldSecret.DeepCopy()
			test.mutate(newSecret)
			expect.FieldErrors(t, validation.ValidateSecretUpdate(newSecret, oldSecret), test.want...)
		})
	}
}
