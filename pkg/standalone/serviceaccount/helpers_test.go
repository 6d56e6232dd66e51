// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package serviceaccount

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"maps"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	corev1listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/annex-dev/annex/pkg/test/expect"
)

const issuerName = "https://annex.example"

var (
	epoch = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

	robot = &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "robot", UID: "robot-uid"}}
	vault = &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "vault", UID: "vault-uid"}}
)

func newECDSA(t testing.TB, curve elliptic.Curve) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(curve, rand.Reader)
	expect.NoError(t, err)
	return key
}

// fixture is an authenticator and all that it depends on.
type fixture struct {
	key    *ecdsa.PrivateKey
	keyID  string
	issuer *Issuer
	clock  *clocktesting.FakePassiveClock
	// cachedAccounts and cachedSecrets are in the informers' caches, live is stored.
	cachedAccounts, cachedSecrets cache.Indexer
	live                          *fake.Clientset
	authenticator                 *tokenAuthenticator
}

// newFixture has the given objects, in the informers' caches too.
func newFixture(t testing.TB, objects ...runtime.Object) *fixture {
	t.Helper()
	w := &fixture{
		key:            newECDSA(t, elliptic.P256()),
		clock:          clocktesting.NewFakePassiveClock(epoch),
		cachedAccounts: cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}),
		cachedSecrets:  cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}),
		live:           fake.NewClientset(objects...),
	}
	for _, object := range objects {
		indexer := w.cachedAccounts
		if _, isSecret := object.(*corev1.Secret); isSecret {
			indexer = w.cachedSecrets
		}
		expect.NoError(t, indexer.Add(object))
	}
	var err error
	if w.issuer, err = NewIssuer(issuerName, w.key); err != nil {
		t.Fatal(err)
	}
	keys, err := NewKeys(w.key.Public())
	expect.NoError(t, err)
	w.keyID = keys.published[0].KeyID
	w.authenticator = NewAuthenticator(AuthenticatorConfig{
		Issuers:         []string{issuerName, "https://before.example"},
		Keys:            keys,
		Audiences:       []string{"annex", "annex-too"},
		ServiceAccounts: corev1listers.NewServiceAccountLister(w.cachedAccounts),
		Secrets:         corev1listers.NewSecretLister(w.cachedSecrets),
		Live:            w.live.CoreV1(),
		Clock:           w.clock,
	}).(*tokenAuthenticator)
	return w
}

// issue makes a token for the robot that is good for an hour.
func (w *fixture) issue(t testing.TB, secret *corev1.Secret, audiences ...string) string {
	t.Helper()
	token, err := w.issuer.Issue(Grant{ServiceAccount: robot, Secret: secret, Audiences: audiences, IssuedAt: epoch, Expires: epoch.Add(time.Hour)})
	expect.NoError(t, err)
	return token.Signed
}

// header and payload return the parts of a valid token, with changes; nil removes a field.
func (w *fixture) header(changes map[string]any) map[string]any {
	return changed(map[string]any{"alg": "ES256", "kid": w.keyID}, changes)
}

func (w *fixture) payload(changes map[string]any) map[string]any {
	return changed(map[string]any{
		"iss": issuerName,
		"sub": "system:serviceaccount:team:robot",
		"aud": []string{"annex"},
		"exp": epoch.Add(time.Hour).Unix(),
		"iat": epoch.Unix(),
		"nbf": epoch.Unix(),
		"jti": "one",
		"kubernetes.io": map[string]any{
			"namespace": "team", "serviceaccount": map[string]any{"name": "robot", "uid": "robot-uid"},
		},
	}, changes)
}

func changed(fields, changes map[string]any) map[string]any {
	maps.Copy(fields, changes)
	maps.DeleteFunc(fields, func(_ string, value any) bool { return value == nil })
	return fields
}

// forge puts a token together from any parts.
func forge(t testing.TB, header, payload any, sign func(content []byte) []byte) string {
	t.Helper()
	content := encode(t, header) + "." + encode(t, payload)
	return content + "." + base64.RawURLEncoding.EncodeToString(sign([]byte(content)))
}

func encode(t testing.TB, part any) string {
	t.Helper()
	raw, isRaw := part.(string)
	if !isRaw {
		encoded, err := json.Marshal(part)
		expect.NoError(t, err)
		raw = string(encoded)
	}
	return base64.RawURLEncoding.EncodeToString([]byte(raw))
}

// es256 signs as JOSE wants it: both numbers, 32 bytes each.
func es256(t testing.TB, key *ecdsa.PrivateKey) func([]byte) []byte {
	t.Helper()
	return func(content []byte) []byte {
		hash := sha256.Sum256(content)
		r, s, err := ecdsa.Sign(rand.Reader, key, hash[:])
		expect.NoError(t, err)
		signature := make([]byte, 64)
		r.FillBytes(signature[:32])
		s.FillBytes(signature[32:])
		return signature
	}
}

// public returns the public halves.
func public(keys ...crypto.Signer) []crypto.PublicKey {
	var all []crypto.PublicKey
	for _, key := range keys {
		all = append(all, key.Public())
	}
	return all
}
