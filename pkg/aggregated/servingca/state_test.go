// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package servingca

import (
	"bytes"
	"crypto/x509"
	"errors"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/annex-dev/annex/pkg/pki"
	"github.com/annex-dev/annex/pkg/test/expect"
)

func TestStateSurvivesTheSecret(t *testing.T) {
	t.Parallel()
	distributed := rotating(t)
	distributed.DistributedSince = epoch.Add(202 * time.Hour)
	promoted, _, err := advance(distributed, true, epoch.Add(203*time.Hour), lifetimes)
	expect.NoError(t, err)
	asked := mustState(t, epoch)
	asked.Rotate = true
	for name, state := range map[string]*State{"stable": mustState(t, epoch), "rotating": rotating(t), "distributed": distributed, "promoted": promoted, "asked for": asked} {
		secret := mustSecret(t, state)
		got := mustParse(t, secret)
		if got.Rotate != state.Rotate {
			t.Errorf("%s: a rotation is asked for: %t", name, got.Rotate)
		}
		expect.Equal(t, secret, mustSecret(t, got), "%s: another state was read", name)
		if !got.DistributedSince.Equal(state.DistributedSince) || !got.PreviousUntil.Equal(state.PreviousUntil) {
			t.Errorf("%s: read %v, %v, wrote %v, %v", name, got.DistributedSince, got.PreviousUntil, state.DistributedSince, state.PreviousUntil)
		}
		if !slices.EqualFunc(got.Previous, state.Previous, (*x509.Certificate).Equal) {
			t.Errorf("%s: the previous CAs are %v, want %v", name, subjects(got.Previous), subjects(state.Previous))
		}
	}
	if !bytes.Equal(distributed.Bundle(), promoted.Bundle()) {
		t.Error("the bundle changed when the next CA took over: every APIService would be written once more")
	}
}

func TestWriteLeavesAloneWhatItDoesNotKnow(t *testing.T) {
	t.Parallel()
	secret := mustSecret(t, rotating(t))
	secret.Data["note"] = []byte("theirs")
	secret.Annotations = map[string]string{"theirs": "too", DistributedSinceAnnotation: "x", RotateAnnotation: "x"}
	expect.NoError(t, mustState(t, epoch).Write(secret))
	if string(secret.Data["note"]) != "theirs" || len(secret.Annotations) != 1 {
		t.Errorf("kept %v and %v", secret.Data["note"], secret.Annotations)
	}
	if _, found := secret.Data[NextPrivateKey]; found {
		t.Error("the key of a next CA is still there")
	}
}

func TestParseRefuses(t *testing.T) {
	t.Parallel()
	other := mustSecret(t, mustState(t, epoch))
	leafy := func(t *testing.T) []byte {
		t.Helper()
		pair, err := mustState(t, epoch).Signing.Issue(pki.ServingTemplate(nil), epoch, time.Hour)
		expect.NoError(t, err)
		return pair.CertPEM
	}
	tests := map[string]struct {
		damage func(*testing.T, *corev1.Secret)
		want   string
	}{
		"another type":     {func(_ *testing.T, s *corev1.Secret) { s.Type = corev1.SecretTypeOpaque }, "it has the type Opaque, not annex.dev/serving-ca"},
		"empty":            {func(_ *testing.T, s *corev1.Secret) { s.Data = nil }, "ca.crt, ca.key: tls: failed to find any PEM data in certificate"},
		"no key":           {func(_ *testing.T, s *corev1.Secret) { delete(s.Data, PrivateKey) }, "PEM data in key"},
		"another CA's key": {func(_ *testing.T, s *corev1.Secret) { s.Data[PrivateKey] = other.Data[PrivateKey] }, "does not match"},
		"another CA":       {func(_ *testing.T, s *corev1.Secret) { s.Data[CertKey] = other.Data[CertKey] }, "does not match"},
		"another pair": {func(_ *testing.T, s *corev1.Secret) {
			s.Data[CertKey], s.Data[PrivateKey] = other.Data[CertKey], other.Data[PrivateKey]
		}, "does not end in"},
		"damaged CA":            {func(_ *testing.T, s *corev1.Secret) { s.Data[CertKey] = s.Data[CertKey][:60] }, "ca.crt, ca.key: tls: failed to find any PEM data in certificate"},
		"no next key":           {func(_ *testing.T, s *corev1.Secret) { delete(s.Data, NextPrivateKey) }, "next.crt, next.key"},
		"no next certificate":   {func(_ *testing.T, s *corev1.Secret) { delete(s.Data, NextCertKey) }, "next.crt, next.key"},
		"no bundle":             {func(_ *testing.T, s *corev1.Secret) { delete(s.Data, BundleKey) }, "ca-bundle.crt: contains no PEM certificate"},
		"bundle without the CA": {func(_ *testing.T, s *corev1.Secret) { s.Data[BundleKey] = s.Data[NextCertKey] }, "ca-bundle.crt does not end in"},
		"bundle without next":   {func(_ *testing.T, s *corev1.Secret) { s.Data[BundleKey] = s.Data[CertKey] }, "ca-bundle.crt does not end in"},
		"bundle in other order": {func(_ *testing.T, s *corev1.Secret) {
			s.Data[BundleKey] = append(bytes.Clone(s.Data[NextCertKey]), s.Data[CertKey]...)
		}, "ca-bundle.crt does not end in"},
		"leaf in the bundle": {func(t *testing.T, s *corev1.Secret) { s.Data[BundleKey] = append(leafy(t), s.Data[BundleKey]...) }, "is not a CA"},
		"damaged distributed since": {func(_ *testing.T, s *corev1.Secret) {
			s.Annotations = map[string]string{DistributedSinceAnnotation: "today"}
		}, DistributedSinceAnnotation},
		"damaged previous until": {func(_ *testing.T, s *corev1.Secret) { s.Annotations = map[string]string{PreviousUntilAnnotation: ""} }, PreviousUntilAnnotation},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			secret := mustSecret(t, rotating(t))
			tt.damage(t, secret)
			_, err := Parse(secret)
			expect.Error(t, err, "the Secret annex-system/annex-serving-ca of the main cluster", tt.want, "restore it, or delete it")
			if !errors.Is(err, ErrUnusable) {
				t.Error("it is not an ErrUnusable")
			}
		})
	}
}
