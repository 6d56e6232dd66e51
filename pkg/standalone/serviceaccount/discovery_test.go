// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package serviceaccount

import (
	"crypto/elliptic"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	jose "gopkg.in/go-jose/go-jose.v2"

	"github.com/annex-dev/annex/pkg/test/expect"
)

func TestDiscovery(t *testing.T) {
	t.Parallel()
	signing, before := newECDSA(t, elliptic.P256()), newRSA(t, 2048)
	discovery, err := NewDiscovery(issuerName, "https://annex.example/openid/v1/jwks", mustKeys(t, public(signing, before)...))
	expect.NoError(t, err)
	mux := http.NewServeMux()
	discovery.Install(mux)

	want := `{"issuer":"https://annex.example","jwks_uri":"https://annex.example/openid/v1/jwks","response_types_supported":["id_token"],` +
		`"subject_types_supported":["public"],"id_token_signing_alg_values_supported":["ES256","RS256"]}`
	expect.Equal(t, want, get(t, mux, ConfigurationPath, "application/json"), "configuration")

	raw := get(t, mux, KeysPath, "application/jwk-set+json")
	var published jose.JSONWebKeySet
	expect.NoError(t, json.Unmarshal([]byte(raw), &published), "%s", raw)
	if len(published.Keys) != 2 || !published.Keys[0].IsPublic() || !published.Keys[1].IsPublic() {
		t.Fatalf("keys %s, want two public ones", raw)
	}
	// A relying party verifies with what is published.
	issuer, err := NewIssuer(issuerName, before)
	expect.NoError(t, err)
	token, err := issuer.Issue(Grant{ServiceAccount: robot, Audiences: []string{"vault"}, IssuedAt: epoch, Expires: epoch})
	expect.NoError(t, err)
	parsed, err := jose.ParseSigned(token.Signed)
	expect.NoError(t, err)
	found := published.Key(parsed.Signatures[0].Header.KeyID)
	if len(found) != 1 {
		t.Fatalf("the token's key %s is published %d times", parsed.Signatures[0].Header.KeyID, len(found))
	}
	if _, err := parsed.Verify(found[0]); err != nil {
		t.Errorf("verifying with the published key: %v", err)
	}
}

func get(t *testing.T, handler http.Handler, path, contentType string) string {
	t.Helper()
	recorder := httptest.NewRecorder()
	handler.ServeHTTP(recorder, httptest.NewRequest(http.MethodGet, path, nil))
	if recorder.Code != http.StatusOK || recorder.Header().Get("Content-Type") != contentType {
		t.Fatalf("%s: %d %s", path, recorder.Code, recorder.Header().Get("Content-Type"))
	}
	if got := recorder.Header().Get("Cache-Control"); got != "public, max-age=3600" {
		t.Errorf("%s: Cache-Control %q", path, got)
	}
	posted := httptest.NewRecorder()
	handler.ServeHTTP(posted, httptest.NewRequest(http.MethodPost, path, nil))
	if posted.Code != http.StatusMethodNotAllowed {
		t.Errorf("POST %s: %d", path, posted.Code)
	}
	return strings.TrimSpace(recorder.Body.String())
}

func TestDiscoverable(t *testing.T) {
	t.Parallel()
	for issuer, want := range map[string]bool{
		"https://annex.example":        true,
		"https://annex.example/path":   true,
		"https://annex.example:1":      true,
		"http://annex.example":         false,
		"https://annex.example?a=b":    false,
		"https://annex.example#a":      false,
		"https://":                     false,
		"annex":                        false,
		"system:annex":                 false,
		"https://annex.example\x00":    false,
		"https://annex.example:port/x": false,
	} {
		if got := Discoverable(issuer); got != want {
			t.Errorf("%q: %t", issuer, got)
		}
		if _, err := NewDiscovery(issuer, "", mustKeys(t, newECDSA(t, elliptic.P256()).Public())); (err == nil) != want {
			t.Errorf("%q: error %v", issuer, err)
		}
	}
}
