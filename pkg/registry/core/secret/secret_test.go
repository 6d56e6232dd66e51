// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package secret

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/util/cert"

	"github.com/annex-dev/annex/pkg/test/expect"
)

func TestWarnings(t *testing.T) {
	t.Parallel()
	certificate, key, err := cert.GenerateSelfSignedCertKey("localhost", nil, nil)
	expect.NoError(t, err, "generate a certificate")
	tests := []struct {
		name   string
		secret corev1.Secret
		want   []string
	}{
		{name: "pair", secret: corev1.Secret{
			Type: corev1.SecretTypeTLS, Data: map[string][]byte{corev1.TLSCertKey: certificate, corev1.TLSPrivateKeyKey: key},
		}},
		{
			name: "no certificate in it", want: []string{"tls: failed to find any PEM data in certificate input"},
			secret: corev1.Secret{Type: corev1.SecretTypeTLS, Data: map[string][]byte{corev1.TLSPrivateKeyKey: key}},
		},
		{name: "other type", secret: corev1.Secret{Type: corev1.SecretTypeOpaque}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			s := newStrategy(runtime.NewScheme())
			expect.Equal(t, test.want, s.WarningsOnCreate(t.Context(), &test.secret), "warnings on create")
			expect.Equal(t, test.want, s.WarningsOnUpdate(t.Context(), &test.secret, &test.secret), "warnings on update")
		})
	}
}

func TestStrategyValidates(t *testing.T) {
	t.Parallel()
	s := newStrategy(runtime.NewScheme())
	valid := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "ns", ResourceVersion: "1"}}
	broken := valid.DeepCopy()
	broken.Type = corev1.SecretTypeSSHAuth
	if errs := s.Validate(t.Context(), valid); len(errs) != 0 {
		t.Errorf("Validate: %v", errs)
	}
	if errs := s.Validate(t.Context(), broken); len(errs) != 1 {
		t.Errorf("Validate of a broken secret: %v, want one error", errs)
	}
	if errs := s.ValidateUpdate(t.Context(), broken, valid); len(errs) != 2 {
		t.Errorf("ValidateUpdate to a broken secret: %v, want two errors", errs)
	}
}

func TestTable(t *testing.T) {
	t.Parallel()
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "a", CreationTimestamp: metav1.NewTime(time.Now().Add(-36 * time.Hour))},
		Type:       corev1.SecretTypeOpaque, Data: map[string][]byte{"k": nil, "l": nil},
	}
	table, err := tableConvertor.ConvertToTable(t.Context(), secret, nil)
	expect.NoError(t, err, "ConvertToTable")
	expect.Equal(t, []any{"a", "Opaque", int64(2), "36h"}, table.Rows[0].Cells, "cells")
}
