// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package servingca

import (
	"crypto/x509"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/annex-dev/annex/pkg/pki"
	"github.com/annex-dev/annex/pkg/test/expect"
)

var (
	epoch = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

	// lifetimes let a rotation begin after 200 h of a CA's life.
	lifetimes = Lifetimes{CA: 300 * time.Hour, Certificate: 30 * time.Hour, Propagation: time.Hour}
)

func mustState(t *testing.T, at time.Time) *State {
	t.Helper()
	state, err := newState(at, lifetimes)
	expect.NoError(t, err)
	return state
}

// rotating is a state with a next CA.
func rotating(t *testing.T) *State {
	t.Helper()
	state, due, err := advance(mustState(t, epoch), true, epoch.Add(201*time.Hour), lifetimes)
	if err != nil || due != stepAddNext {
		t.Fatalf("advance: %q, %v", due, err)
	}
	return state
}

func mustSecret(t *testing.T, state *State) *corev1.Secret {
	t.Helper()
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "annex-system", Name: SecretName("annex")}}
	expect.NoError(t, state.Write(secret))
	return secret
}

func mustParse(t *testing.T, secret *corev1.Secret) *State {
	t.Helper()
	state, err := Parse(secret)
	expect.NoError(t, err)
	return state
}

// subjects are the names of certificates.
func subjects(certificates []*x509.Certificate) []string {
	var names []string
	for _, certificate := range certificates {
		names = append(names, certificate.Subject.CommonName)
	}
	return names
}

// verify checks a served chain as the main cluster does.
func verify(t *testing.T, bundle, cert []byte, name string, at time.Time) error {
	t.Helper()
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(bundle) {
		t.Fatal("the bundle is empty")
	}
	chain, err := pki.ParseBundle(cert)
	expect.NoError(t, err)
	_, err = chain[0].Verify(x509.VerifyOptions{Roots: roots, DNSName: name, CurrentTime: at})
	return err
}

func contained(part, all []*x509.Certificate) bool {
	for _, certificate := range part {
		if !slices.ContainsFunc(all, certificate.Equal) {
			return false
		}
	}
	return true
}
