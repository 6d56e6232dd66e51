// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package oidcissuer is an OpenID Connect issuer inside a test: discovery and keys
// over TLS on loopback, and tokens with any claims.
package oidcissuer

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/annex-dev/annex/pkg/test/clients"
	"github.com/annex-dev/annex/pkg/test/expect"
)

const (
	discoveryPath = "/.well-known/openid-configuration"
	keysPath      = "/keys"
)

// Issuer signs tokens with a key that it publishes.
type Issuer struct {
	// URL is the issuer URL.
	URL string
	// CA is its certificate authority, in PEM.
	CA string

	mu       sync.Mutex
	key      *ecdsa.PrivateKey
	number   int // of the key
	down     bool
	requests int // of keys
}

// New starts an issuer that ends with the test.
func New(t testing.TB) *Issuer {
	t.Helper()
	i := &Issuer{}
	i.Rotate(t)
	mux := http.NewServeMux()
	mux.HandleFunc(discoveryPath, func(w http.ResponseWriter, _ *http.Request) {
		i.respond(w, map[string]any{
			"issuer": i.URL, "jwks_uri": i.URL + keysPath, "id_token_signing_alg_values_supported": []string{"ES256"},
			"response_types_supported": []string{"id_token"}, "subject_types_supported": []string{"public"},
		})
	})
	mux.HandleFunc(keysPath, func(w http.ResponseWriter, _ *http.Request) { i.respond(w, i.keys()) })
	server, authority := clients.ServeTLS(t, mux, nil)
	i.URL, i.CA = server.URL, string(authority)
	return i
}

func (i *Issuer) respond(w http.ResponseWriter, body any) {
	i.mu.Lock()
	down := i.down
	i.mu.Unlock()
	if down {
		http.Error(w, "the issuer is down", http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(body)
}

func (i *Issuer) keys() map[string]any {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.requests++
	point, err := i.key.PublicKey.Bytes() // 4, x, y
	if err != nil {
		panic(err) // New generated the key
	}
	x, y := point[1:33], point[33:]
	key := map[string]any{"kty": "EC", "crv": "P-256", "alg": "ES256", "use": "sig", "kid": i.keyID(), "x": encode(x), "y": encode(y)}
	return map[string]any{"keys": []any{key}}
}

func (i *Issuer) keyID() string { return fmt.Sprintf("key-%d", i.number) }

// Rotate replaces the key.
func (i *Issuer) Rotate(t testing.TB) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	expect.NoError(t, err)
	i.mu.Lock()
	defer i.mu.Unlock()
	i.key, i.number = key, i.number+1
}

// SetDown makes all requests fail, or succeed again.
func (i *Issuer) SetDown(down bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.down = down
}

// KeyRequests is the number of requests for the keys.
func (i *Issuer) KeyRequests() int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.requests
}

// Token returns a token for `sub` "alice" of the audience "annex", valid for an hour. claims
// override claims; a nil claim is omitted.
func (i *Issuer) Token(t testing.TB, claims map[string]any) string {
	t.Helper()
	now := time.Now()
	all := map[string]any{
		"iss": i.URL, "aud": "annex", "sub": "alice",
		"iat": now.Unix(), "nbf": now.Add(-time.Minute).Unix(), "exp": now.Add(time.Hour).Unix(),
	}
	maps.Copy(all, claims)
	maps.DeleteFunc(all, func(_ string, value any) bool { return value == nil })
	i.mu.Lock()
	defer i.mu.Unlock()
	signed := segment(t, map[string]any{"alg": "ES256", "typ": "JWT", "kid": i.keyID()}) + "." + segment(t, all)
	digest := sha256.Sum256([]byte(signed))
	r, s, err := ecdsa.Sign(rand.Reader, i.key, digest[:])
	expect.NoError(t, err)
	signature := make([]byte, 64)
	r.FillBytes(signature[:32])
	s.FillBytes(signature[32:])
	return signed + "." + encode(signature)
}

// Unsigned returns an unsigned token.
func (i *Issuer) Unsigned(t testing.TB) string {
	t.Helper()
	claims := map[string]any{"iss": i.URL, "aud": "annex", "sub": "alice", "exp": time.Now().Add(time.Hour).Unix()}
	return segment(t, map[string]any{"alg": "none", "typ": "JWT"}) + "." + segment(t, claims) + "."
}

func segment(t testing.TB, content any) string {
	t.Helper()
	raw, err := json.Marshal(content)
	expect.NoError(t, err)
	return encode(raw)
}

func encode(raw []byte) string { return base64.RawURLEncoding.EncodeToString(raw) }
