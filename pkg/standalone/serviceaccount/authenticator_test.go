// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package serviceaccount

import (
	"context"
	"crypto/elliptic"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/x509"
	"encoding/pem"
	"strings"
	"testing"
	"time"

	jose "gopkg.in/go-jose/go-jose.v2"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/annex-dev/annex/pkg/test/expect"
)

func TestAuthenticateToken(t *testing.T) {
	t.Parallel()
	w := newFixture(t, robot, vault)
	token, err := w.issuer.Issue(Grant{ServiceAccount: robot, Audiences: []string{"annex", "other"}, IssuedAt: epoch, Expires: epoch.Add(time.Hour)})
	expect.NoError(t, err)
	want := &authenticator.Response{
		Audiences: authenticator.Audiences{"annex"},
		User: &user.DefaultInfo{
			Name:   "system:serviceaccount:team:robot",
			UID:    "robot-uid",
			Groups: []string{"system:serviceaccounts", "system:serviceaccounts:team"},
			Extra:  map[string][]string{"authentication.kubernetes.io/credential-id": {token.CredentialID}},
		},
	}
	for _, name := range []string{"first", "remembered"} {
		response, ok, err := w.authenticator.AuthenticateToken(t.Context(), token.Signed)
		if !ok || err != nil {
			t.Fatalf("%s: recognised %t, error %v", name, ok, err)
		}
		expect.Equal(t, want, response, "%s", name)
	}
	if got := w.authenticator.verified.Len(); got != 1 {
		t.Errorf("%d tokens are remembered, want 1", got)
	}
}

func TestAuthenticateTokenOfOthers(t *testing.T) {
	t.Parallel()
	w := newFixture(t, robot)
	for name, token := range map[string]string{
		"empty":              "",
		"static":             "secret",
		"bootstrap":          "abcdef.0123456789abcdef",
		"dots":               "..",
		"another issuer":     forge(t, w.header(nil), w.payload(map[string]any{"iss": "https://other.example"}), es256(t, w.key)),
		"no issuer":          forge(t, w.header(nil), w.payload(map[string]any{"iss": nil}), es256(t, w.key)),
		"issuer of a number": forge(t, w.header(nil), w.payload(map[string]any{"iss": 1}), es256(t, w.key)),
		"payload no JSON":    forge(t, w.header(nil), "{", es256(t, w.key)),
		"payload no base64":  "e30.*.e30",
		"header no base64":   "*." + encode(t, w.payload(nil)) + ".e30",
		"more parts":         w.issue(t, nil, "annex") + ".e30",
		"JSON serialization": `{"payload":"` + encode(t, w.payload(nil)) + `","x":"a.b.c"}`,
	} {
		if _, ok, err := w.authenticator.AuthenticateToken(t.Context(), token); ok || err != nil {
			t.Errorf("%s: recognised %t, error %v; want neither", name, ok, err)
		}
	}
}

func TestAuthenticateTokenRefuses(t *testing.T) {
	t.Parallel()
	w := newFixture(t, robot, vault)
	foreign := newECDSA(t, elliptic.P256())
	signed := es256(t, w.key)
	kubernetes := func(changes map[string]any) map[string]any {
		return map[string]any{"kubernetes.io": changed(map[string]any{
			"namespace": "team", "serviceaccount": map[string]any{"name": "robot", "uid": "robot-uid"},
		}, changes)}
	}
	sign := func(changes map[string]any) string { return forge(t, w.header(nil), w.payload(changes), signed) }
	for name, test := range map[string]struct{ token, want string }{
		"algorithm none": {
			forge(t, map[string]any{"alg": "none"}, w.payload(nil), func([]byte) []byte { return nil }), "signature",
		},
		"algorithm none with a key": {
			forge(t, w.header(map[string]any{"alg": "none"}), w.payload(nil), func([]byte) []byte { return nil }), "signature",
		},
		"no algorithm": {forge(t, w.header(map[string]any{"alg": nil}), w.payload(nil), signed), "signature"},
		"symmetric with the public key": {
			forge(t, w.header(map[string]any{"alg": "HS256"}), w.payload(nil), hs256(t, w)), "signature",
		},
		"algorithm of another curve": {forge(t, w.header(map[string]any{"alg": "ES384"}), w.payload(nil), signed), "signature"},
		"unknown key":                {forge(t, w.header(map[string]any{"kid": "other"}), w.payload(nil), signed), `key "other"`},
		"foreign key":                {forge(t, w.header(map[string]any{"kid": nil}), w.payload(nil), es256(t, foreign)), "signature"},
		"foreign key under the name of ours": {
			forge(t, w.header(nil), w.payload(nil), es256(t, foreign)), "signature",
		},
		"foreign key in the token": {
			forge(t, w.header(map[string]any{"jwk": jose.JSONWebKey{Key: foreign.Public(), KeyID: w.keyID}}), w.payload(nil), es256(t, foreign)), "signature",
		},
		"critical extension":  {forge(t, w.header(map[string]any{"crit": []string{"x"}, "x": 1}), w.payload(nil), signed), "signature"},
		"header no JSON":      {forge(t, "{", w.payload(nil), signed), "read a token"},
		"no signature":        {forge(t, w.header(nil), w.payload(nil), func([]byte) []byte { return nil }), "signature"},
		"half a signature":    {forge(t, w.header(nil), w.payload(nil), func(c []byte) []byte { return signed(c)[:32] }), "signature"},
		"changed payload":     {swapPayload(t, w.issue(t, nil, "annex"), w.payload(map[string]any{"sub": "system:serviceaccount:team:admin"})), "signature"},
		"no expiry":           {sign(map[string]any{"exp": nil}), "does not expire"},
		"expiry is a word":    {sign(map[string]any{"exp": "never"}), "claims"},
		"expired":             {sign(map[string]any{"exp": epoch.Add(-time.Second).Unix()}), "has expired"},
		"expires now":         {sign(map[string]any{"exp": epoch.Unix()}), "has expired"},
		"expiry of null":      {sign(map[string]any{"exp": (*int)(nil)}), "does not expire"},
		"not good yet":        {sign(map[string]any{"nbf": epoch.Add(2 * time.Minute).Unix()}), "not good before"},
		"of the future":       {sign(map[string]any{"iat": epoch.Add(2 * time.Minute).Unix()}), "future"},
		"no audience":         {sign(map[string]any{"aud": nil}), "no audience"},
		"no audiences":        {sign(map[string]any{"aud": []string{}}), "no audience"},
		"another audience":    {sign(map[string]any{"aud": []string{"vault"}}), `"vault"`},
		"audience: a number":  {sign(map[string]any{"aud": 1}), "claims"},
		"no subject":          {sign(map[string]any{"sub": nil}), "subject"},
		"another subject":     {sign(map[string]any{"sub": "system:serviceaccount:team:admin"}), "subject"},
		"no private claims":   {sign(map[string]any{"kubernetes.io": nil}), "does not name its service account"},
		"private claims []":   {sign(map[string]any{"kubernetes.io": []string{}}), "claims"},
		"no namespace":        {sign(kubernetes(map[string]any{"namespace": nil})), "does not name its service account"},
		"no UID":              {sign(kubernetes(map[string]any{"serviceaccount": map[string]any{"name": "robot"}})), "does not name its service account"},
		"no name":             {sign(kubernetes(map[string]any{"serviceaccount": map[string]any{"uid": "robot-uid"}})), "does not name its service account"},
		"bound to a pod":      {sign(kubernetes(map[string]any{"pod": map[string]any{"name": "p", "uid": "u"}})), "Pod"},
		"bound to a node":     {sign(kubernetes(map[string]any{"node": map[string]any{"name": "n", "uid": "u"}})), "Node"},
		"Secret without UID":  {sign(kubernetes(map[string]any{"secret": map[string]any{"name": "vault"}})), "does not name the Secret"},
		"Secret without name": {sign(kubernetes(map[string]any{"secret": map[string]any{"uid": "vault-uid"}})), "does not name the Secret"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, again := range []bool{false, true} {
				response, ok, err := w.authenticator.AuthenticateToken(t.Context(), test.token)
				if ok || response != nil || err == nil {
					t.Fatalf("again %t: recognised %t as %v, error %v", again, ok, response, err)
				}
				expect.Error(t, err, test.want)
			}
		})
	}
}

// hs256 signs with the server's public key as a shared secret, which fools servers that
// let the token choose the algorithm.
func hs256(t *testing.T, w *fixture) func([]byte) []byte {
	t.Helper()
	der, err := x509.MarshalPKIXPublicKey(w.key.Public())
	expect.NoError(t, err)
	return func(content []byte) []byte {
		mac := hmac.New(sha256.New, pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}))
		mac.Write(content)
		return mac.Sum(nil)
	}
}

func swapPayload(t *testing.T, token string, payload any) string {
	t.Helper()
	parts := strings.Split(token, ".")
	parts[1] = encode(t, payload)
	return strings.Join(parts, ".")
}

func TestAuthenticateTokenAccepts(t *testing.T) {
	t.Parallel()
	w := newFixture(t, robot, vault)
	for name, token := range map[string]string{
		"bound to a Secret":           w.issue(t, vault, "annex"),
		"no key named":                forge(t, w.header(map[string]any{"kid": nil}), w.payload(nil), es256(t, w.key)),
		"one audience, not in a list": forge(t, w.header(nil), w.payload(map[string]any{"aud": "annex-too"}), es256(t, w.key)),
		"the issuer's name before":    forge(t, w.header(nil), w.payload(map[string]any{"iss": "https://before.example"}), es256(t, w.key)),
		"a replica's clock is ahead":  forge(t, w.header(nil), w.payload(map[string]any{"nbf": epoch.Add(30 * time.Second).Unix(), "iat": epoch.Add(30 * time.Second).Unix()}), es256(t, w.key)),
		"no ID":                       forge(t, w.header(nil), w.payload(map[string]any{"jti": nil, "iat": nil, "nbf": nil}), es256(t, w.key)),
	} {
		if _, ok, err := w.authenticator.AuthenticateToken(t.Context(), token); !ok || err != nil {
			t.Errorf("%s: recognised %t, error %v", name, ok, err)
		}
	}
}

// TestAuthenticateTokenLater advances the clock after a token was cached.
func TestAuthenticateTokenLater(t *testing.T) {
	t.Parallel()
	w := newFixture(t, robot)
	token := w.issue(t, nil, "annex")
	for _, step := range []struct {
		after time.Duration
		ok    bool
	}{{0, true}, {time.Hour - time.Second, true}, {time.Hour, false}, {time.Hour + time.Second, false}} {
		w.clock.SetTime(epoch.Add(step.after))
		if _, ok, err := w.authenticator.AuthenticateToken(t.Context(), token); ok != step.ok || ok == (err != nil) {
			t.Errorf("after %s: recognised %t, error %v; want %t", step.after, ok, err, step.ok)
		}
	}
	if got := w.authenticator.verified.Len(); got != 0 {
		t.Errorf("%d tokens that have expired are remembered", got)
	}
}

func TestAuthenticateTokenForAudiences(t *testing.T) {
	t.Parallel()
	w := newFixture(t, robot)
	token := w.issue(t, nil, "annex", "vault")
	for _, test := range []struct {
		asked, want authenticator.Audiences
	}{
		{authenticator.Audiences{"vault"}, authenticator.Audiences{"vault"}},
		{authenticator.Audiences{"x", "vault", "annex"}, authenticator.Audiences{"vault", "annex"}},
		{authenticator.Audiences{"x"}, nil},
		{authenticator.Audiences{}, nil},
	} {
		ctx := authenticator.WithAudiences(context.Background(), test.asked)
		response, ok, err := w.authenticator.AuthenticateToken(ctx, token)
		if ok != (test.want != nil) || ok == (err != nil) {
			t.Errorf("asked for %q: recognised %t, error %v", test.asked, ok, err)
			continue
		}
		if ok {
			expect.Equal(t, test.want, response.Audiences, "asked for %q", test.asked)
		}
	}
}

// TestKeyRotation rotates keys as an administrator does.
func TestKeyRotation(t *testing.T) {
	t.Parallel()
	w := newFixture(t, robot)
	before, after := w.issue(t, nil, "annex"), newECDSA(t, elliptic.P384())
	next, err := NewIssuer(issuerName, after)
	expect.NoError(t, err)
	fresh, err := next.Issue(Grant{ServiceAccount: robot, Audiences: []string{"annex"}, IssuedAt: epoch, Expires: epoch.Add(time.Hour)})
	expect.NoError(t, err)
	for _, step := range []struct {
		name       string
		keys       *Keys
		old, fresh bool
	}{
		{"before", mustKeys(t, w.key.Public()), true, false},
		{"both", mustKeys(t, after.Public(), w.key.Public()), true, true},
		{"after", mustKeys(t, after.Public()), false, true},
	} {
		restarted := newFixture(t, robot)
		restarted.authenticator.Keys = step.keys
		for name, test := range map[string]struct {
			token string
			want  bool
		}{"old": {before, step.old}, "fresh": {fresh.Signed, step.fresh}} {
			if _, ok, err := restarted.authenticator.AuthenticateToken(t.Context(), test.token); ok != test.want || ok == (err != nil) {
				t.Errorf("%s, %s token: recognised %t, error %v; want %t", step.name, name, ok, err, test.want)
			}
		}
	}
}

// FuzzAuthenticateToken searches for an accepted token that annex did not sign, and for
// panics.
func FuzzAuthenticateToken(f *testing.F) {
	w := newFixture(f, robot, vault)
	signed := sets.New[string]()
	for _, token := range []string{w.issue(f, nil, "annex"), w.issue(f, vault, "annex")} {
		f.Add(token)
		signed.Insert(content(token))
	}
	f.Add(forge(f, map[string]any{"alg": "none"}, w.payload(nil), func([]byte) []byte { return nil }))
	f.Add(forge(f, w.header(map[string]any{"kid": nil}), w.payload(nil), es256(f, newECDSA(f, elliptic.P256()))))
	f.Add("...")
	f.Add(`{"payload":"e30","protected":"e30","signature":"e30.e30.e30"}`)
	f.Fuzz(func(t *testing.T, token string) {
		response, ok, err := w.authenticator.AuthenticateToken(t.Context(), token)
		if ok && err != nil || !ok && response != nil {
			t.Fatalf("recognised %t as %v, error %v", ok, response, err)
		}
		if ok && !signed.Has(content(token)) {
			t.Fatalf("recognised, though annex did not sign it: %q", token)
		}
	})
}

// content is the signed part of a token. JOSE allows white space in it.
func content(token string) string {
	token = strings.Join(strings.Fields(token), "")
	return token[:max(0, strings.LastIndex(token, "."))]
}

// BenchmarkAuthenticateToken measures each request with a token; first is the first one
// with it.
func BenchmarkAuthenticateToken(b *testing.B) {
	w := newFixture(b, robot, vault)
	for name, token := range map[string]string{"cached": w.issue(b, nil, "annex"), "cached and bound": w.issue(b, vault, "annex")} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, ok, err := w.authenticator.AuthenticateToken(b.Context(), token); !ok || err != nil {
					b.Fatal(ok, err)
				}
			}
		})
	}
	b.Run("first", func(b *testing.B) {
		token := w.issue(b, nil, "annex")
		b.ReportAllocs()
		for b.Loop() {
			w.authenticator.verified.Clear()
			if _, ok, err := w.authenticator.AuthenticateToken(b.Context(), token); !ok || err != nil {
				b.Fatal(ok, err)
			}
		}
	})
}
