// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package stores

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/test/etcdcluster"
	"github.com/annex-dev/annex/pkg/test/expect"
	"github.com/annex-dev/annex/pkg/test/poll"
)

// secrets are the existing Secrets, by name.
type secrets struct {
	mu    sync.Mutex
	all   map[string]*corev1.Secret
	reads int
}

func (s *secrets) read(_ context.Context, _, name string) (*corev1.Secret, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reads++
	if secret := s.all[name]; secret != nil {
		return secret, nil
	}
	return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "secrets"}, name)
}

// set replaces the content of a Secret, or with nil deletes it.
func (s *secrets) set(name string, data map[string][]byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if data == nil {
		delete(s.all, name)
		return
	}
	s.all[name] = &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name, ResourceVersion: time.Now().String()}, Data: data}
}

// awaitMessage waits until a Store is unavailable for a reason, with these words in the message.
func awaitMessage(t *testing.T, s *Store, reason string, words ...string) {
	t.Helper()
	awaitReason(t, s, reason)
	poll.Until(t, "the message of reason "+reason, func() string {
		message := s.Snapshot().Unavailable.Message
		for _, word := range words {
			if !strings.Contains(message, word) {
				return "message " + message + " without " + word
			}
		}
		return ""
	})
}

// TestCredentials sets, deletes and replaces the certificates of a Store at run time.
func TestCredentials(t *testing.T) {
	t.Parallel()
	etcd := etcdcluster.Start(t, etcdcluster.Config{Members: 1})
	held := &secrets{all: map[string]*corev1.Secret{}}
	pool := openPool(t, func(c *Config) { c.ReadSecret, c.secretInterval = held.read, time.Millisecond })
	far := object("far", etcd.Endpoints()...)
	far.Spec.Etcd.TLS = &hostingv1alpha1.EtcdTLS{SecretRef: hostingv1alpha1.SecretReference{Namespace: "annex-system", Name: "etcd"}}
	store := synced(t, pool, far)
	valid := etcd.Authority.SecretData(t, time.Now().Add(time.Hour))
	with := func(change func(data map[string][]byte)) map[string][]byte {
		data := map[string][]byte{}
		for key, value := range valid {
			data[key] = value
		}
		change(data)
		return data
	}

	awaitMessage(t, store, ReasonBadCredentials, "annex-system/etcd", "not found")
	for name, tc := range map[string]struct {
		data   map[string][]byte
		reason string
		words  []string
	}{
		"nothing":             {map[string][]byte{}, ReasonBadCredentials, []string{"none of ca.crt, tls.crt and tls.key"}},
		"no key":              {with(func(d map[string][]byte) { delete(d, "tls.key") }), ReasonBadCredentials, []string{"only one of"}},
		"no certificate":      {with(func(d map[string][]byte) { d["tls.crt"] = []byte("?") }), ReasonBadCredentials, []string{"tls.crt and tls.key"}},
		"no authority":        {with(func(d map[string][]byte) { d["ca.crt"] = []byte("?") }), ReasonBadCredentials, []string{"ca.crt"}},
		"another authority":   {with(func(d map[string][]byte) { d["ca.crt"] = etcdcluster.NewAuthority(t).CA }), ReasonUnreachable, []string{"TLS handshake"}},
		"only an authority":   {map[string][]byte{"ca.crt": valid["ca.crt"]}, ReasonUnreachable, []string{"TLS handshake"}},
		"expired":             {etcd.Authority.SecretData(t, time.Now().Add(-time.Hour)), ReasonCertificateExpired, []string{"the client certificate expired at"}},
		"of another's client": {etcdcluster.NewAuthority(t).SecretData(t, time.Now().Add(time.Hour)), ReasonUnreachable, []string{"TLS handshake"}},
	} {
		t.Run(name, func(t *testing.T) { // one after the other: it is one Store
			held.set("etcd", tc.data)
			awaitMessage(t, store, tc.reason, tc.words...)
		})
	}
	held.set("etcd", valid)
	claim(t, pool, far)
	_, err := put(t, store, "a", "1")
	expect.NoError(t, err)
	if expires := store.Snapshot().CertificateExpires; time.Until(expires) > time.Hour || time.Until(expires) < 0 {
		t.Errorf("the certificate expires %s, in an hour it should", expires)
	}

	// The known credentials are used while the Secret cannot be read, which is reported all the
	// time.
	held.set("etcd", nil)
	poll.Until(t, "the missing Secret is reported", func() string {
		if store.Snapshot().SecretErr == nil {
			return "the missing Secret is not reported"
		}
		return ""
	})
	for range 3 {
		before := store.Snapshot()
		store.probeSoon()
		poll.Until(t, "a further probe", func() string {
			if store.Snapshot() == before {
				return "no further look"
			}
			return ""
		})
		if store.Snapshot().SecretErr == nil {
			t.Fatal("the missing Secret is no longer reported")
		}
		if value, err := get(t, store, "a"); value != "1" || err != nil {
			t.Errorf("read %q, %v while the Secret is gone", value, err)
		}
	}
}
