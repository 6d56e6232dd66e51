// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package servingca

import (
	"bytes"
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/annex-dev/annex/pkg/pki"
)

// SecretName is the Secret in which replicas share their CA, in the namespace of their
// Service. Two annexes in one namespace have two.
func SecretName(service string) string { return service + "-serving-ca" }

const (
	// SecretType distinguishes the Secret from other tools'.
	SecretType corev1.SecretType = "annex.dev/serving-ca"

	// CertKey is the CA that signs.
	CertKey = "ca.crt"
	// PrivateKey is its key.
	PrivateKey = "ca.key"
	// NextCertKey is the CA that signs next, if any.
	NextCertKey = "next.crt"
	// NextPrivateKey is its key.
	NextPrivateKey = "next.key"
	// BundleKey holds every CA that verifies serving certificates, the oldest first.
	// One that is neither of those above has stopped signing.
	BundleKey = "ca-bundle.crt"

	// DistributedSinceAnnotation is the time from which every APIService of annex had a bundle
	// with the next CA.
	DistributedSinceAnnotation = "annex.dev/bundle-distributed-since"
	// RotateAnnotation requests a next CA now, with any value. annex removes it when
	// the rotation begins.
	RotateAnnotation = "annex.dev/rotate-ca"
	// PreviousUntilAnnotation is the time at which a CA that stopped signing leaves the bundle.
	PreviousUntilAnnotation = "annex.dev/previous-ca-until"
)

// ErrUnusable is returned for a Secret that annex did not create, or that was damaged.
// annex does not write to it.
var ErrUnusable = errors.New("annex does not change it: restore it, or delete it, and running replicas restore theirs; " +
	"if none runs, a new CA is created")

// State is the content of the Secret.
type State struct {
	// Signing signs serving certificates.
	Signing *pki.Authority
	// Next is in the bundle and signs next; nil outside of a rotation.
	Next *pki.Authority
	// DistributedSince is the time from which every APIService had Next, or zero.
	DistributedSince time.Time
	// Previous have stopped signing.
	Previous []*x509.Certificate
	// PreviousUntil is the time at which Previous leave the bundle.
	PreviousUntil time.Time
	// Rotate requests a Next at any age of Signing.
	Rotate bool
}

// Certificates are all that verify serving certificates, the oldest first, so that the
// bundle stays the same when Next takes over.
func (s *State) Certificates() []*x509.Certificate {
	all := append(slices.Clone(s.Previous), s.Signing.Certificate())
	if s.Next != nil {
		all = append(all, s.Next.Certificate())
	}
	return all
}

// Bundle encodes Certificates for an APIService.
func (s *State) Bundle() []byte { return pki.EncodeBundle(s.Certificates()) }

// Parse reads the Secret. An error is an ErrUnusable.
func Parse(secret *corev1.Secret) (*State, error) {
	state, err := parse(secret)
	if err != nil {
		return nil, fmt.Errorf("the Secret %s/%s of the main cluster: %w; %w", secret.Namespace, secret.Name, err, ErrUnusable)
	}
	return state, nil
}

func parse(secret *corev1.Secret) (*State, error) {
	if secret.Type != SecretType {
		return nil, fmt.Errorf("it has the type %s, not %s: annex did not create it", secret.Type, SecretType)
	}
	state := &State{}
	var err error
	if state.Signing, err = authority(secret, CertKey, PrivateKey); err != nil {
		return nil, err
	}
	if len(secret.Data[NextCertKey]) > 0 || len(secret.Data[NextPrivateKey]) > 0 {
		if state.Next, err = authority(secret, NextCertKey, NextPrivateKey); err != nil {
			return nil, err
		}
	}
	bundle, err := pki.ParseBundle(secret.Data[BundleKey])
	if err != nil {
		return nil, fmt.Errorf("%s: %w", BundleKey, err)
	}
	for _, certificate := range bundle {
		if !certificate.IsCA {
			return nil, fmt.Errorf("%s: %s is not a CA", BundleKey, certificate.Subject)
		}
		if !isCertificateOf(state.Signing, certificate) && !isCertificateOf(state.Next, certificate) {
			state.Previous = append(state.Previous, certificate)
		}
	}
	if !bytes.Equal(state.Bundle(), pki.EncodeBundle(bundle)) {
		return nil, fmt.Errorf("%s does not end in %s and %s", BundleKey, CertKey, NextCertKey)
	}
	if state.DistributedSince, err = timeAnnotation(secret, DistributedSinceAnnotation); err != nil {
		return nil, err
	}
	if state.PreviousUntil, err = timeAnnotation(secret, PreviousUntilAnnotation); err != nil {
		return nil, err
	}
	_, state.Rotate = secret.Annotations[RotateAnnotation]
	return state, nil
}

// Write writes the state into a Secret and keeps unknown keys.
func (s *State) Write(secret *corev1.Secret) error {
	secret.Type = SecretType
	data := maps.Clone(secret.Data)
	if data == nil {
		data = map[string][]byte{}
	}
	signingKey, err := s.Signing.KeyPEM()
	if err != nil {
		return fmt.Errorf("encode the key of the serving CA: %w", err)
	}
	data[CertKey], data[PrivateKey], data[BundleKey] = s.Signing.CertPEM(), signingKey, s.Bundle()
	delete(data, NextCertKey)
	delete(data, NextPrivateKey)
	if s.Next != nil {
		nextKey, err := s.Next.KeyPEM()
		if err != nil {
			return fmt.Errorf("encode the key of the next serving CA: %w", err)
		}
		data[NextCertKey], data[NextPrivateKey] = s.Next.CertPEM(), nextKey
	}
	secret.Data = data
	setTimeAnnotation(secret, DistributedSinceAnnotation, s.DistributedSince)
	setTimeAnnotation(secret, PreviousUntilAnnotation, s.PreviousUntil)
	switch _, asked := secret.Annotations[RotateAnnotation]; {
	case asked && !s.Rotate:
		delete(secret.Annotations, RotateAnnotation)
	case s.Rotate && !asked:
		metav1.SetMetaDataAnnotation(&secret.ObjectMeta, RotateAnnotation, "true")
	}
	return nil
}

func authority(secret *corev1.Secret, certKey, privateKey string) (*pki.Authority, error) {
	parsed, err := pki.ParseAuthority(secret.Data[certKey], secret.Data[privateKey])
	if err != nil {
		return nil, fmt.Errorf("%s, %s: %w", certKey, privateKey, err)
	}
	return parsed, nil
}

func isCertificateOf(authority *pki.Authority, certificate *x509.Certificate) bool {
	return authority != nil && authority.Certificate().Equal(certificate)
}

func timeAnnotation(secret *corev1.Secret, annotation string) (time.Time, error) {
	value, found := secret.Annotations[annotation]
	if !found {
		return time.Time{}, nil
	}
	at, err := time.Parse(time.RFC3339Nano, value)
	if err != nil {
		return time.Time{}, fmt.Errorf("annotation %s: %w", annotation, err)
	}
	return at, nil
}

func setTimeAnnotation(secret *corev1.Secret, annotation string, at time.Time) {
	annotations := maps.Clone(secret.Annotations)
	if at.IsZero() {
		delete(annotations, annotation)
	} else {
		if annotations == nil {
			annotations = map[string]string{}
		}
		annotations[annotation] = at.UTC().Format(time.RFC3339Nano)
	}
	secret.Annotations = annotations
}
