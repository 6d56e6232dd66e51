// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilrand "k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/util/keyutil"

	"github.com/annex-dev/annex/pkg/storage/etcd/embeddedetcd/etcdtest"
	"github.com/annex-dev/annex/pkg/test/expect"
	"github.com/annex-dev/annex/pkg/test/poll"
)

// newServiceAccount creates a namespace with the service account "robot".
func (a *annex) newServiceAccount(t *testing.T) (namespace string) {
	t.Helper()
	namespace = a.newNamespace(t)
	a.createServiceAccount(t, namespace)
	return namespace
}

func (a *annex) createServiceAccount(t *testing.T, namespace string) {
	t.Helper()
	robot := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "robot"}}
	expect.Create(t, a.Kube.CoreV1().ServiceAccounts(namespace), robot)
}

// createToken requests a token of the service account.
func (a *annex) createToken(t *testing.T, namespace string, spec authenticationv1.TokenRequestSpec) *authenticationv1.TokenRequest {
	t.Helper()
	answer, err := a.tryCreateToken(t, namespace, spec)
	expect.NoError(t, err)
	return answer
}

func (a *annex) tryCreateToken(t *testing.T, namespace string, spec authenticationv1.TokenRequestSpec) (*authenticationv1.TokenRequest, error) {
	t.Helper()
	return a.Kube.CoreV1().ServiceAccounts(namespace).CreateToken(t.Context(), "robot", &authenticationv1.TokenRequest{Spec: spec}, metav1.CreateOptions{})
}

// authenticates reports whether a token is accepted, regardless of authorization.
func (a *annex) authenticates(t *testing.T, bearer string) bool {
	t.Helper()
	return send(t, a.httpClientAs(t, bearerToken(bearer)), http.MethodGet, a.URL+"/api", "").Code != http.StatusUnauthorized
}

// waitForUnauthorized waits until a token is refused.
func (a *annex) waitForUnauthorized(t *testing.T, bearer, why string) {
	t.Helper()
	poll.UntilDone(t, "401 after "+why, func() (bool, string) {
		return !a.authenticates(t, bearer), "the token is accepted"
	})
}

// review returns the status of a TokenReview with audiences.
func (a *annex) review(t *testing.T, bearer string, audiences ...string) authenticationv1.TokenReviewStatus {
	t.Helper()
	review := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: bearer, Audiences: audiences}}
	answer := expect.Create(t, a.Kube.AuthenticationV1().TokenReviews(), review)
	return answer.Status
}

func TestServiceAccountTokens(t *testing.T) {
	t.Parallel()
	a := sharedAnnex(t)
	namespace := a.newServiceAccount(t)
	before := time.Now().Truncate(time.Second)
	answer := a.createToken(t, namespace, authenticationv1.TokenRequestSpec{})
	if expires := answer.Status.ExpirationTimestamp.Time; expires.Before(before.Add(time.Hour)) || *answer.Spec.ExpirationSeconds != 3600 {
		t.Errorf("valid until %s, for %d seconds; want an hour", expires, *answer.Spec.ExpirationSeconds)
	}
	got := a.review(t, answer.Status.Token)
	if want := "system:serviceaccount:" + namespace + ":robot"; !got.Authenticated || got.User.Username != want || got.User.UID == "" {
		t.Errorf("the token is of %+v, want %s", got, want)
	}
	if want := []string{"system:serviceaccounts", "system:serviceaccounts:" + namespace}; !slices.Contains(got.User.Groups, want[0]) || !slices.Contains(got.User.Groups, want[1]) {
		t.Errorf("groups %q, want %q among them", got.User.Groups, want)
	}
	if id := got.User.Extra["authentication.kubernetes.io/credential-id"]; len(id) != 1 || !strings.HasPrefix(id[0], "JTI=") {
		t.Errorf("the token has the ID %q", id)
	}
	if !a.authenticates(t, answer.Status.Token) {
		t.Error("it is refused")
	}
	_, err := a.tryCreateToken(t, namespace, authenticationv1.TokenRequestSpec{ExpirationSeconds: new(int64(60))})
	expect.Error(t, err, "spec.expirationSeconds", "10 minutes")
	for kind, name := range map[string]string{"Pod": "p", "Node": "n"} {
		_, err := a.tryCreateToken(t, namespace, authenticationv1.TokenRequestSpec{BoundObjectRef: &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: kind, Name: name}})
		expect.Error(t, err, "annex has no "+kind+"s")
	}
}

func TestTokenAudiences(t *testing.T) {
	t.Parallel()
	a := sharedAnnex(t)
	namespace := a.newServiceAccount(t)
	bearer := a.createToken(t, namespace, authenticationv1.TokenRequestSpec{Audiences: []string{"vault"}}).Status.Token
	if a.authenticates(t, bearer) {
		t.Error("a token for another audience logs in")
	}
	if got := a.review(t, bearer); got.Authenticated {
		t.Errorf("it is valid for annex: %+v", got)
	}
	if got := a.review(t, bearer, "registry", "vault"); !got.Authenticated || !slices.Equal(got.Audiences, []string{"vault"}) {
		t.Errorf("it is not valid for its audience: %+v", got)
	}
}

func TestTokensRevokedWithServiceAccount(t *testing.T) {
	t.Parallel()
	a := sharedAnnex(t)
	namespace := a.newServiceAccount(t)
	bearer := a.createToken(t, namespace, authenticationv1.TokenRequestSpec{}).Status.Token
	if !a.authenticates(t, bearer) {
		t.Fatal("it is refused before the deletion")
	}
	expect.Delete(t, a.Kube.CoreV1().ServiceAccounts(namespace), "robot")
	a.waitForUnauthorized(t, bearer, "its service account was deleted")
	a.createServiceAccount(t, namespace)
	if fresh := a.createToken(t, namespace, authenticationv1.TokenRequestSpec{}).Status.Token; !a.authenticates(t, fresh) {
		t.Error("a token of the recreated service account is refused")
	}
	if a.authenticates(t, bearer) {
		t.Error("a token of the deleted service account is accepted")
	}
}

func TestTokensRevokedWithSecret(t *testing.T) {
	t.Parallel()
	a := sharedAnnex(t)
	namespace := a.newServiceAccount(t)
	secrets := a.Kube.CoreV1().Secrets(namespace)
	makeSecret := func() *corev1.Secret {
		t.Helper()
		return expect.Create(t, secrets, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "lock"}})
	}
	bound := &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Secret", Name: "lock", UID: makeSecret().UID}
	bearer := a.createToken(t, namespace, authenticationv1.TokenRequestSpec{BoundObjectRef: bound}).Status.Token
	if !a.authenticates(t, bearer) {
		t.Fatal("it is refused before the deletion")
	}
	expect.Delete(t, secrets, "lock")
	a.waitForUnauthorized(t, bearer, "its Secret was deleted")
	makeSecret()
	if a.authenticates(t, bearer) {
		t.Error("it is accepted with another Secret of that name")
	}
	if _, err := a.tryCreateToken(t, namespace, authenticationv1.TokenRequestSpec{BoundObjectRef: bound}); !apierrors.IsConflict(err) {
		t.Errorf("a token for a Secret with another UID: %v, want a conflict", err)
	}
}

// TestInvalidTokens signs tokens with annex's own key that annex would not sign.
func TestInvalidTokens(t *testing.T) {
	t.Parallel()
	a := sharedAnnex(t)
	namespace := a.newServiceAccount(t)
	own, err := keyutil.PrivateKeyFromFile(filepath.Join(a.DataDir, "pki", "service-account.key"))
	expect.NoError(t, err)
	payload := payloadOf(t, a.createToken(t, namespace, authenticationv1.TokenRequestSpec{}).Status.Token)
	sign := func(key *ecdsa.PrivateKey, field string, value any) string {
		changed := map[string]any{}
		for name, value := range payload {
			changed[name] = value
		}
		changed[field] = value
		return signES256(t, key, changed)
	}
	for name, test := range map[string]struct {
		token string
		want  bool
	}{
		"the same":      {sign(own.(*ecdsa.PrivateKey), "jti", "x"), true},
		"expired":       {sign(own.(*ecdsa.PrivateKey), "exp", time.Now().Add(-time.Second).Unix()), false},
		"no expiry":     {sign(own.(*ecdsa.PrivateKey), "exp", nil), false},
		"foreign key":   {sign(newECDSAKey(t), "jti", "x"), false},
		"other account": {sign(own.(*ecdsa.PrivateKey), "sub", "system:serviceaccount:kube-system:default"), false},
	} {
		if got := a.authenticates(t, test.token); got != test.want {
			t.Errorf("%s: accepted: %t, want %t", name, got, test.want)
		}
	}
}

func newECDSAKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	expect.NoError(t, err)
	return key
}

// keyFile writes a private key as openssl does.
func keyFile(t *testing.T, key *ecdsa.PrivateKey) string {
	t.Helper()
	der, err := x509.MarshalECPrivateKey(key)
	expect.NoError(t, err)
	return writeFile(t, "key.pem", pem.EncodeToMemory(&pem.Block{Type: keyutil.ECPrivateKeyBlockType, Bytes: der}))
}

// payloadOf decodes a token without verifying it.
func payloadOf(t *testing.T, token string) map[string]any {
	t.Helper()
	raw, err := base64.RawURLEncoding.DecodeString(strings.Split(token, ".")[1])
	expect.NoError(t, err)
	payload := map[string]any{}
	expect.NoError(t, json.Unmarshal(raw, &payload))
	return payload
}

func signES256(t *testing.T, key *ecdsa.PrivateKey, payload map[string]any) string {
	t.Helper()
	raw, err := json.Marshal(payload)
	expect.NoError(t, err)
	content := base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"ES256"}`)) + "." + base64.RawURLEncoding.EncodeToString(raw)
	hash := sha256.Sum256([]byte(content))
	r, s, err := ecdsa.Sign(rand.Reader, key, hash[:])
	expect.NoError(t, err)
	signature := make([]byte, 64)
	r.FillBytes(signature[:32])
	s.FillBytes(signature[32:])
	return content + "." + base64.RawURLEncoding.EncodeToString(signature)
}

// TestSigningKeyRotation changes the key as in docs/authentication.md.
func TestSigningKeyRotation(t *testing.T) {
	t.Parallel()
	a := startAnnex(t)
	namespace := a.newServiceAccount(t)
	own := a.createToken(t, namespace, authenticationv1.TokenRequestSpec{}).Status.Token

	next := keyFile(t, newECDSAKey(t))
	a = a.restart(t, "--service-account-signing-key-file="+next, "--service-account-key-file="+filepath.Join(a.DataDir, "pki", "service-account.key"),
		"--service-account-max-token-expiration=1h", "--service-account-issuer=https://tokens.example", "--service-account-issuer=https://annex.local",
		"--api-audiences=annex,https://annex.local", "--service-account-jwks-uri=https://tokens.example/keys")
	answer := a.createToken(t, namespace, authenticationv1.TokenRequestSpec{ExpirationSeconds: new(int64(7200))})
	if *answer.Spec.ExpirationSeconds != 3600 {
		t.Errorf("valid for %d seconds, more than allowed", *answer.Spec.ExpirationSeconds)
	}
	if payload := payloadOf(t, answer.Status.Token); payload["iss"] != "https://tokens.example" {
		t.Errorf("issued by %s", payload["iss"])
	}
	if !a.authenticates(t, own) || !a.authenticates(t, answer.Status.Token) {
		t.Error("tokens of the old or of the new key are refused")
	}
	if got := publishedKeys(t, a); got != 2 {
		t.Errorf("%d keys are published, want the signing key and the old one", got)
	}
	var configuration map[string]any
	a.get(t, "/.well-known/openid-configuration").Into(t, &configuration)
	if configuration["issuer"] != "https://tokens.example" || configuration["jwks_uri"] != "https://tokens.example/keys" {
		t.Errorf("configuration %v", configuration)
	}

	a = a.restart(t, "--service-account-signing-key-file="+next, "--api-audiences=annex")
	if a.authenticates(t, own) {
		t.Error("a token of a removed key is accepted")
	}
	if a.authenticates(t, answer.Status.Token) {
		t.Error("a token of a removed issuer is accepted")
	}
}

// TestTokensOnReplicas accepts and revokes tokens on replicas that share a key.
func TestTokensOnReplicas(t *testing.T) {
	t.Parallel()
	flags := []string{"--etcd-servers=" + etcdtest.Start(t, nil).Endpoint(), "--service-account-signing-key-file=" + keyFile(t, newECDSAKey(t))}
	one, other := startAnnex(t, flags...), startAnnex(t, flags...)
	namespace := one.newServiceAccount(t)
	bearer := one.createToken(t, namespace, authenticationv1.TokenRequestSpec{}).Status.Token
	if !one.authenticates(t, bearer) || !other.authenticates(t, bearer) {
		t.Fatal("a token is not accepted by both replicas")
	}
	expect.Delete(t, other.Kube.CoreV1().ServiceAccounts(namespace), "robot")
	one.waitForUnauthorized(t, bearer, "the other replica deleted its service account")
	other.waitForUnauthorized(t, bearer, "its service account was deleted")
	for _, a := range []*annex{one, other} {
		if _, err := os.Stat(filepath.Join(a.DataDir, "pki", "service-account.key")); !os.IsNotExist(err) {
			t.Errorf("annex created a key despite the flag: %v", err)
		}
	}
}

func publishedKeys(t *testing.T, a *annex) int {
	t.Helper()
	var published struct{ Keys []map[string]any }
	got := a.get(t, "/openid/v1/jwks")
	if contentType := got.Header.Get("Content-Type"); contentType != "application/jwk-set+json" {
		t.Errorf("keys of type %q", contentType)
	}
	got.Into(t, &published)
	for _, key := range published.Keys {
		if _, private := key["d"]; private {
			t.Error("a private key is published")
		}
	}
	return len(published.Keys)
}

func TestTokenKeysNeedLogin(t *testing.T) {
	t.Parallel()
	a := sharedAnnex(t)
	robot := a.createToken(t, a.newServiceAccount(t), authenticationv1.TokenRequestSpec{}).Status.Token
	for _, path := range []string{"/openid/v1/jwks", "/.well-known/openid-configuration"} {
		send(t, a.httpClientAs(t, nil), http.MethodGet, a.URL+path, "").Expect(t, http.StatusUnauthorized, "%s without a login", path)
		send(t, a.httpClientAs(t, bearerToken(outsiderToken)), http.MethodGet, a.URL+path, "").Expect(t, http.StatusForbidden, "%s for a user without rights", path)
		if got := send(t, a.httpClientAs(t, bearerToken(robot)), http.MethodGet, a.URL+path, ""); got.Code != http.StatusOK || !strings.Contains(got.Header.Get("Cache-Control"), "public, max-age=") {
			t.Errorf("%s: %s, %s", path, got, got.Header.Get("Cache-Control"))
		}
	}
}

// bootstrapSecret is the Secret of a bootstrap token.
func bootstrapSecret(id, password, expiration, groups string) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "bootstrap-token-" + id},
		Type:       "bootstrap.kubernetes.io/token",
		StringData: map[string]string{
			"token-id": id, "token-secret": password, "usage-bootstrap-authentication": "true",
			"expiration": expiration, "auth-extra-groups": groups,
		},
	}
}

func TestBootstrapTokens(t *testing.T) {
	t.Parallel()
	a := sharedAnnex(t)
	secrets := a.Kube.CoreV1().Secrets(metav1.NamespaceSystem)
	const password = "0123456789abcdef"
	good, bad, late := utilrand.String(6), utilrand.String(6), utilrand.String(6)
	in := func(d time.Duration) string { return time.Now().Add(d).UTC().Format(time.RFC3339) }
	for _, secret := range []*corev1.Secret{
		bootstrapSecret(bad, password, in(time.Hour), "system:masters"),
		bootstrapSecret(late, password, in(-time.Hour), ""),
		// The last, so that the others are known when this one is.
		bootstrapSecret(good, password, in(time.Hour), "system:bootstrappers:workers"),
	} {
		expect.Create(t, secrets, secret)
	}
	var got authenticationv1.TokenReviewStatus
	poll.UntilDone(t, "a bootstrap token is accepted", func() (bool, string) {
		got = a.review(t, good+"."+password)
		return got.Authenticated, got.Error
	})
	if got.User.Username != "system:bootstrap:"+good || !slices.Contains(got.User.Groups, "system:bootstrappers") || !slices.Contains(got.User.Groups, "system:bootstrappers:workers") {
		t.Errorf("it is of %+v", got.User)
	}
	for name, bearer := range map[string]string{
		"a group that gives rights": bad + "." + password, "expired": late + "." + password,
		"wrong password": good + ".fedcba9876543210", "unknown": utilrand.String(6) + "." + password,
	} {
		if a.authenticates(t, bearer) {
			t.Errorf("%s: it is accepted", name)
		}
	}
	expect.Gone(t, secrets, "bootstrap-token-"+late)
	expect.Delete(t, secrets, "bootstrap-token-"+good)
	a.waitForUnauthorized(t, good+"."+password, "its Secret was deleted")
}

func TestDefaultServiceAccount(t *testing.T) {
	t.Parallel()
	a := sharedAnnex(t)
	for _, namespace := range []string{metav1.NamespaceDefault, a.newNamespace(t)} {
		accounts := a.Kube.CoreV1().ServiceAccounts(namespace)
		first := expect.Eventually(t, accounts, "default", "the default service account of "+namespace, func(*corev1.ServiceAccount) bool { return true })
		expect.Delete(t, accounts, "default")
		expect.Eventually(t, accounts, "default", "another after it was deleted", func(again *corev1.ServiceAccount) bool {
			return again.UID != first.UID
		})
	}
}
