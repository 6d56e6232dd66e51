// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package authentication

import (
	"context"
	"crypto/sha256"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/component-base/metrics/legacyregistry"

	"github.com/annex-dev/annex/pkg/test/expect"
	"github.com/annex-dev/annex/pkg/test/oidcissuer"
	"github.com/annex-dev/annex/pkg/test/poll"
)

const header = "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthenticationConfiguration\n"

// jwtOf configures an issuer. more is YAML of the JWT authenticator.
func jwtOf(issuer *oidcissuer.Issuer, more string) string {
	authority := "\n      " + strings.ReplaceAll(strings.TrimSpace(issuer.CA), "\n", "\n      ")
	return fmt.Sprintf("- issuer:\n    url: %s\n    audiences: [annex]\n    certificateAuthority: |%s\n%s", issuer.URL, authority, more)
}

const plainMapping = `  claimMappings:
    username: {claim: sub, prefix: "oidc:"}
    groups: {claim: groups, prefix: "oidc:"}
`

func plain(issuers ...*oidcissuer.Issuer) string {
	config := header + "jwt:\n"
	for _, issuer := range issuers {
		config += jwtOf(issuer, plainMapping)
	}
	return config
}

func writeConfig(t *testing.T, path, content string) {
	t.Helper()
	// As editors do, in one step.
	expect.NoError(t, os.WriteFile(path+".new", []byte(content), 0o600))
	expect.NoError(t, os.Rename(path+".new", path))
}

// structured runs a configuration, in a file of its own, until the test ends.
func structured(t *testing.T, config string) *Structured {
	t.Helper()
	path := filepath.Join(t.TempDir(), "authentication.yaml")
	writeConfig(t, path, config)
	s, err := NewStructured(StructuredOptions{
		Path: path, OpenPaths: []string{"/livez"}, OwnIssuers: []string{"https://annex"}, APIServerID: t.Name(),
	})
	expect.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	return s
}

// login returns the user of a token, or the error.
func (s *Structured) login(token string) string {
	found, ok, err := s.AuthenticateToken(context.Background(), token)
	switch {
	case err != nil:
		return "error: " + err.Error()
	case !ok:
		return "no user"
	}
	return described(found.User)
}

func described(of user.Info) string {
	text := fmt.Sprintf("%s %v", of.GetName(), of.GetGroups())
	if of.GetUID() != "" {
		text += " uid " + of.GetUID()
	}
	if len(of.GetExtra()) > 0 {
		text += fmt.Sprintf(" %v", of.GetExtra())
	}
	return text
}

func (s *Structured) waitLogin(t *testing.T, token, want string) {
	t.Helper()
	poll.UntilDone(t, "a login as "+want, func() (bool, string) {
		got := s.login(token)
		return got == want, got
	})
}

func (s *Structured) anonymousAt(path string) bool {
	_, ok, _ := s.AuthenticateAnonymous(&http.Request{URL: &url.URL{Path: path}})
	return ok
}

func TestTokensOfAnIssuer(t *testing.T) {
	t.Parallel()
	issuer, foreign := oidcissuer.New(t), oidcissuer.New(t)
	s := structured(t, plain(issuer))
	s.waitLogin(t, issuer.Token(t, map[string]any{"groups": []string{"a", "b"}}), "oidc:alice [oidc:a oidc:b]")

	forged := func() string {
		// The foreign issuer's key has the same ID, and the token claims to be of this
		// issuer.
		return foreign.Token(t, map[string]any{"iss": issuer.URL})
	}
	tampered := func() string {
		parts := strings.Split(issuer.Token(t, nil), ".")
		return parts[0] + "." + strings.Split(issuer.Token(t, map[string]any{"sub": "root"}), ".")[1] + "." + parts[2]
	}
	for name, test := range map[string]struct{ token, want string }{
		"one group":         {issuer.Token(t, map[string]any{"groups": "a"}), "oidc:alice [oidc:a]"},
		"several audiences": {issuer.Token(t, map[string]any{"aud": []string{"other", "annex"}}), "oidc:alice []"},
		"another audience":  {issuer.Token(t, map[string]any{"aud": "other"}), `error: oidc: verify token: oidc: expected audience "annex" got ["other"]`},
		"no audience":       {issuer.Token(t, map[string]any{"aud": nil}), `error: oidc: verify token: oidc: expected audience "annex" got []`},
		"expired":           {issuer.Token(t, map[string]any{"exp": time.Now().Add(-time.Minute).Unix()}), "error: oidc: verify token: oidc: token is expired"},
		"not valid yet":     {issuer.Token(t, map[string]any{"nbf": time.Now().Add(time.Hour).Unix()}), "error: oidc: verify token: oidc: current time"},
		"without an expiry": {issuer.Token(t, map[string]any{"exp": nil}), "error: oidc: verify token: oidc: token is expired"},
		"a foreign key":     {forged(), "error: oidc: verify token: failed to verify signature"},
		"tampered with":     {tampered(), "error: oidc: verify token: failed to verify signature"},
		"no signature":      {issuer.Unsigned(t), "error: oidc: verify token: "},
		"without a name":    {issuer.Token(t, map[string]any{"sub": nil}), "error: oidc: parse username claims"},
		"an unknown issuer": {foreign.Token(t, nil), "no user"},
		"no JWT":            {"6f1ed002ab559585", "no user"},
		"nothing":           {"", "no user"},
	} {
		if got := s.login(test.token); !strings.HasPrefix(got, test.want) {
			t.Errorf("%s: %s, want %s", name, got, test.want)
		}
	}
}

func TestKeysOfAnIssuerRotate(t *testing.T) {
	t.Parallel()
	issuer := oidcissuer.New(t)
	s := structured(t, plain(issuer))
	old := issuer.Token(t, nil)
	s.waitLogin(t, old, "oidc:alice []")
	issuer.Rotate(t)
	if got := s.login(issuer.Token(t, nil)); got != "oidc:alice []" {
		t.Errorf("with the new key: %s", got)
	}
	if got := s.login(old); !strings.Contains(got, "failed to verify signature") {
		t.Errorf("with the key that is no longer published: %s", got)
	}
	issuer.SetDown(true)
	requests := issuer.KeyRequests()
	if got := s.login(issuer.Token(t, nil)); got != "oidc:alice []" || issuer.KeyRequests() != requests {
		t.Errorf("a known key is asked for again: %s", got)
	}
}

// An unavailable issuer keeps neither annex from starting nor tokens of others from
// being accepted.
func TestIssuerThatIsDown(t *testing.T) {
	t.Parallel()
	up, down := oidcissuer.New(t), oidcissuer.New(t)
	down.SetDown(true)
	s := structured(t, plain(down, up))
	s.waitLogin(t, up.Token(t, nil), "oidc:alice []")
	if got := s.login(down.Token(t, nil)); !strings.Contains(got, "not initialized") {
		t.Errorf("a token of an issuer that is down: %s", got)
	}
	down.SetDown(false)
	s.waitLogin(t, down.Token(t, nil), "oidc:alice []")
}

func TestExpressions(t *testing.T) {
	t.Parallel()
	issuer := oidcissuer.New(t)
	s := structured(t, header+"jwt:\n"+jwtOf(issuer, `  claimValidationRules:
  - expression: 'claims.exp - claims.iat <= 7200'
    message: a token must not live longer than two hours
  - claim: tenant
    requiredValue: blue
  claimMappings:
    username: {expression: 'claims.tenant + ":" + claims.sub'}
    groups: {expression: 'claims.roles.split(",").map(role, role)'}
    uid: {claim: uid}
    extra:
    - {key: example.com/tenant, valueExpression: claims.tenant}
  userValidationRules:
  - expression: '!user.groups.exists(group, group.startsWith("system:"))'
    message: system groups are not given away
`))
	claims := func(more map[string]any) map[string]any {
		all := map[string]any{"tenant": "blue", "roles": "dev,ops", "uid": "17"}
		for name, value := range more {
			all[name] = value
		}
		return all
	}
	s.waitLogin(t, issuer.Token(t, claims(nil)), "blue:alice [dev ops] uid 17 map[example.com/tenant:[blue]]")
	for name, test := range map[string]struct {
		claims map[string]any
		want   string
	}{
		"long life":             {claims(map[string]any{"exp": time.Now().Add(3 * time.Hour).Unix()}), "a token must not live longer than two hours"},
		"another tenant":        {claims(map[string]any{"tenant": "red"}), "claim tenant value does not match"},
		"group of the system":   {claims(map[string]any{"roles": "dev,system:masters"}), "system groups are not given away"},
		"claim that is missing": {claims(map[string]any{"roles": nil}), "no such key: roles"},
	} {
		if got := s.login(issuer.Token(t, test.claims)); !strings.HasPrefix(got, "error: ") || !strings.Contains(got, test.want) {
			t.Errorf("%s: %s, want an error with %q", name, got, test.want)
		}
	}
}

func TestReload(t *testing.T) {
	t.Parallel()
	first, second := oidcissuer.New(t), oidcissuer.New(t)
	s := structured(t, plain(first))
	ofFirst, ofSecond := first.Token(t, nil), second.Token(t, nil)
	s.waitLogin(t, ofFirst, "oidc:alice []")
	if got := s.login(ofSecond); got != "no user" {
		t.Fatalf("before it is in the file: %s", got)
	}
	path := s.options.Path

	writeConfig(t, path, plain(second))
	s.waitLogin(t, ofSecond, "oidc:alice []")
	if got := s.login(ofFirst); got != "no user" {
		t.Errorf("an issuer that is no longer in the file: %s", got)
	}
	waitReloads(t, 1, 0)

	writeConfig(t, path, strings.Replace(plain(first), "username", "usrname", 1))
	waitReloads(t, 1, 1)
	writeConfig(t, path, "")
	waitReloads(t, 1, 2)
	expect.NoError(t, os.Remove(path))
	waitReloads(t, 1, 3)
	if got := s.login(ofSecond); got != "oidc:alice []" {
		t.Errorf("what was in force before three broken files is not any more: %s", got)
	}

	writeConfig(t, path, plain(first, second)+"anonymous: {enabled: true, conditions: [{path: /version}]}\n")
	s.waitLogin(t, ofFirst, "oidc:alice []")
	waitReloads(t, 2, 3)
	if s.anonymousAt("/livez") || !s.anonymousAt("/version") {
		t.Error("the paths for anonymous requests have not changed")
	}
}

// What cannot be put in force yet is, as soon as it can.
func TestReloadWaitsForIssuers(t *testing.T) {
	t.Parallel()
	first, late := oidcissuer.New(t), oidcissuer.New(t)
	late.SetDown(true)
	s := structured(t, plain(first))
	s.waitLogin(t, first.Token(t, nil), "oidc:alice []")
	writeConfig(t, s.options.Path, plain(first, late))
	if got := s.login(late.Token(t, nil)); got != "no user" {
		t.Errorf("an issuer that was not reached yet: %s", got)
	}
	late.SetDown(false)
	s.waitLogin(t, late.Token(t, nil), "oidc:alice []")
}

func TestAnonymous(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		config string
		open   []string
	}{
		"not set": {"", []string{"/livez"}},
		"paths":   {"anonymous: {enabled: true, conditions: [{path: /readyz}, {path: /version}]}\n", []string{"/readyz", "/version"}},
		"off":     {"anonymous: {enabled: false}\n", nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := structured(t, header+test.config)
			var open []string
			for _, path := range []string{"/livez", "/readyz", "/version", "/version/", "/", "", "/api", "//version", "/livez/../api"} {
				if s.anonymousAt(path) {
					open = append(open, path)
				}
			}
			expect.Equal(t, test.open, open, "open")
		})
	}
}

func TestBeforeRun(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "authentication.yaml")
	writeConfig(t, path, header)
	s, err := NewStructured(StructuredOptions{Path: path})
	expect.NoError(t, err)
	if got := s.login("x"); got != "error: "+errNotRunning.Error() {
		t.Errorf("a token before Run: %s", got)
	}
}

// reloads counts the changes of this test's file.
func reloads(t *testing.T) (good, bad float64) {
	t.Helper()
	families, err := legacyregistry.DefaultGatherer.Gather()
	expect.NoError(t, err)
	server := fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(t.Name())))
	for _, family := range families {
		if family.GetName() != "apiserver_authentication_config_controller_automatic_reloads_total" {
			continue
		}
		for _, metric := range family.GetMetric() {
			labels := map[string]string{}
			for _, label := range metric.GetLabel() {
				labels[label.GetName()] = label.GetValue()
			}
			switch {
			case labels["apiserver_id_hash"] != server:
			case labels["status"] == "success":
				good = metric.GetCounter().GetValue()
			default:
				bad = metric.GetCounter().GetValue()
			}
		}
	}
	return good, bad
}

func waitReloads(t *testing.T, good, bad float64) {
	t.Helper()
	poll.UntilDone(t, fmt.Sprintf("%v good and %v broken reloads", good, bad), func() (bool, string) {
		gotGood, gotBad := reloads(t)
		return gotGood == good && gotBad == bad, fmt.Sprintf("%v good, %v broken", gotGood, gotBad)
	})
}
