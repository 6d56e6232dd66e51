// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package authentication

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/authenticatorfactory"
	"k8s.io/apiserver/pkg/authentication/request/headerrequest"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"

	"github.com/annex-dev/annex/pkg/pki"
	"github.com/annex-dev/annex/pkg/test/expect"
)

// knows accepts the tokens that begin with its name, returns an error for those that
// begin with "bad-" and its name, and records calls.
type knows struct {
	name  string
	asked *[]string
}

func (k knows) AuthenticateToken(_ context.Context, token string) (*authenticator.Response, bool, error) {
	*k.asked = append(*k.asked, k.name)
	switch {
	case strings.HasPrefix(token, "bad-"+k.name):
		return nil, false, errors.New(k.name + " finds fault with it")
	case strings.Contains(token, k.name):
		return &authenticator.Response{User: &user.DefaultInfo{Name: k.name}}, true, nil
	}
	return nil, false, nil
}

func (k knows) AuthenticateRequest(req *http.Request) (*authenticator.Response, bool, error) {
	return k.AuthenticateToken(req.Context(), req.Header.Get("Authorization"))
}

func openAt(t *testing.T, paths ...string) *Structured {
	t.Helper()
	s, err := NewStructured(StructuredOptions{OpenPaths: paths})
	expect.NoError(t, err)
	return s
}

func TestFirstThatRecognisesDecides(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		token string
		path  string
		want  string // the user, "no user", or a part of the error
		asked string
	}{
		"the first":                {"static", "/api", "static [system:authenticated]", "static"},
		"the last":                 {"webhook", "/api", "webhook [system:authenticated]", "static account bootstrap webhook"},
		"two would":                {"webhook-and-account", "/api", "account [system:authenticated]", "static account"},
		"a fault ends no search":   {"bad-account-but-webhook", "/api", "webhook [system:authenticated]", "static account bootstrap webhook"},
		"two faults":               {"bad-account", "/api", "account finds fault", "static account bootstrap webhook main"},
		"unknown":                  {"unheard-of", "/api", "invalid bearer token", "static account bootstrap webhook main"},
		"unknown, on an open path": {"unheard-of", "/livez", "invalid bearer token", "static account bootstrap webhook main"},
		"the main cluster":         {"main", "/api", "main [system:authenticated]", "static account bootstrap webhook main"},
		"no token":                 {"", "/api", "no user", "main"},
		"no token, open path":      {"", "/livez", "system:anonymous [system:unauthenticated]", "main"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var asked []string
			logins := Config{
				StaticTokens: knows{"static", &asked}, ServiceAccounts: knows{"account", &asked}, BootstrapTokens: knows{"bootstrap", &asked},
				Webhook: knows{"webhook", &asked}, Delegated: knows{"main", &asked}, Structured: openAt(t, "/livez"),
			}.New()
			req := &http.Request{URL: &url.URL{Path: test.path}, Header: http.Header{}}
			if test.token != "" {
				req.Header.Set("Authorization", "Bearer "+test.token)
			}
			if got := loginOf(logins, req); !strings.Contains(got, test.want) {
				t.Errorf("got %q, want %q", got, test.want)
			}
			if got := strings.Join(asked, " "); got != test.asked {
				t.Errorf("asked %s, want %s", got, test.asked)
			}
		})
	}
}

func loginOf(logins authenticator.Request, req *http.Request) string {
	found, ok, err := logins.AuthenticateRequest(req)
	switch {
	case err != nil:
		return err.Error()
	case !ok:
		return "no user"
	}
	return found.User.GetName() + " [" + strings.Join(found.User.GetGroups(), " ") + "]"
}

// A token for any audience is valid for the requested one; a token for another is not.
func TestAudiences(t *testing.T) {
	t.Parallel()
	var asked []string
	logins := Config{Audiences: authenticator.Audiences{"annex"}, StaticTokens: knows{"static", &asked}, ServiceAccounts: knows{"account", &asked}}.New()
	for name, test := range map[string]struct {
		token    string
		audience string
		want     string
	}{
		"good for any, asked about annex":   {"static", "annex", "static"},
		"good for any, asked about another": {"static", "vault", "invalid bearer token"},
		"checks audiences itself":           {"account", "vault", "account"},
	} {
		ctx := authenticator.WithAudiences(t.Context(), authenticator.Audiences{test.audience})
		req := (&http.Request{URL: &url.URL{}, Header: http.Header{"Authorization": {"Bearer " + test.token}}}).WithContext(ctx)
		if got := loginOf(logins, req); !strings.Contains(got, test.want) {
			t.Errorf("%s: %s, want %s", name, got, test.want)
		}
	}
}

// authority signs certificates of clients.
type authority struct {
	*pki.Authority
	dynamiccertificates.CAContentProvider
}

func newAuthority(t *testing.T, name string) authority {
	t.Helper()
	ca, err := pki.NewAuthority(name, time.Now().Add(-time.Hour), time.Now().Add(time.Hour))
	expect.NoError(t, err)
	provider, err := dynamiccertificates.NewStaticCAContent(name, ca.CertPEM())
	expect.NoError(t, err)
	return authority{Authority: ca, CAContentProvider: provider}
}

func (a authority) issue(t *testing.T, user string, lifetime time.Duration, groups ...string) *x509.Certificate {
	t.Helper()
	pair, err := a.Issue(pki.ClientTemplate(user, groups...), time.Now(), lifetime)
	expect.NoError(t, err)
	return pair.Cert
}

func TestFrontProxy(t *testing.T) {
	t.Parallel()
	users, proxies, strangers := newAuthority(t, "users"), newAuthority(t, "proxies"), newAuthority(t, "strangers")
	logins := Config{
		ClientCA: users.CAContentProvider, Structured: openAt(t, "/livez"),
		FrontProxy: &authenticatorfactory.RequestHeaderConfig{
			CAContentProvider:   proxies.CAContentProvider,
			AllowedClientNames:  headerrequest.StaticStringSlice{"proxy"},
			UsernameHeaders:     headerrequest.StaticStringSlice{"X-Remote-User"},
			UIDHeaders:          headerrequest.StaticStringSlice{"X-Remote-Uid"},
			GroupHeaders:        headerrequest.StaticStringSlice{"X-Remote-Group"},
			ExtraHeaderPrefixes: headerrequest.StaticStringSlice{"X-Remote-Extra-"},
		},
	}.New()
	for name, test := range map[string]struct {
		certificate *x509.Certificate
		user        string // of the header
		want        string
	}{
		"the proxy":                     {proxies.issue(t, "proxy", time.Hour), "carol", "carol [a b system:authenticated]"},
		"the proxy without a user":      {proxies.issue(t, "proxy", time.Hour), "", "certificate signed by unknown authority"},
		"the proxy's authority, a user": {proxies.issue(t, "mallory", time.Hour), "carol", "mallory"},
		"a proxy that expired":          {proxies.issue(t, "proxy", -time.Minute), "carol", "expired"},
		"a user with headers":           {users.issue(t, "bob", time.Hour, "c"), "carol", "bob [c system:authenticated]"},
		"a user called as the proxy":    {users.issue(t, "proxy", time.Hour), "carol", "proxy [system:authenticated]"},
		"a foreign authority":           {strangers.issue(t, "proxy", time.Hour), "carol", "unknown authority"},
		"no certificate":                {nil, "carol", "no user"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			req := &http.Request{URL: &url.URL{Path: "/api"}, Header: http.Header{}, TLS: &tls.ConnectionState{}}
			if test.certificate != nil {
				req.TLS.PeerCertificates = []*x509.Certificate{test.certificate}
			}
			if test.user != "" {
				req.Header.Set("X-Remote-User", test.user)
				req.Header["X-Remote-Group"] = []string{"a", "b"}
			}
			got := loginOf(logins, req)
			if !strings.Contains(got, test.want) {
				t.Errorf("got %q, want %q", got, test.want)
			}
			if strings.HasPrefix(got, "carol") != (test.want == "carol [a b system:authenticated]") {
				t.Errorf("the header is believed: %s", got)
			}
		})
	}
}
