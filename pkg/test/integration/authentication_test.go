// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	restclient "k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/annex-dev/annex/pkg/test/clients"
	"github.com/annex-dev/annex/pkg/test/expect"
	"github.com/annex-dev/annex/pkg/test/oidcissuer"
	"github.com/annex-dev/annex/pkg/test/poll"
	"github.com/annex-dev/annex/pkg/test/testserver"
)

// authenticators is an annex with every login method that files configure.
type authenticators struct {
	*annex
	config  string // the file
	issuer  *oidcissuer.Issuer
	users   *authority
	proxies *authority
}

const webhookToken = "webhook-token"

func startWithAllAuthenticators(t *testing.T) *authenticators {
	t.Helper()
	e := &authenticators{issuer: oidcissuer.New(t), users: newAuthority(t), proxies: newAuthority(t)}
	e.config = writeFile(t, "authentication.yaml", []byte(issuersConfig(e.issuer)))
	e.annex = startAnnex(t,
		"--token-auth-file="+writeTokens(t),
		"--client-ca-file="+e.users.file(t),
		"--requestheader-client-ca-file="+e.proxies.file(t),
		"--requestheader-allowed-names=front-proxy",
		"--authentication-config="+e.config,
		"--authentication-token-webhook-config-file="+startTokenWebhook(t),
	)
	return e
}

// issuersConfig trusts issuers, and opens /version beside one health path.
func issuersConfig(issuers ...*oidcissuer.Issuer) string {
	config := "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthenticationConfiguration\n" +
		"anonymous: {enabled: true, conditions: [{path: /readyz}, {path: /version}]}\njwt:\n"
	for _, issuer := range issuers {
		config += fmt.Sprintf("- issuer: {url: %q, audiences: [annex], certificateAuthority: %q}\n", issuer.URL, issuer.CA) +
			"  claimMappings:\n    username: {expression: '\"jwt:\" + claims.sub'}\n    groups: {claim: groups, prefix: ''}\n"
	}
	return config
}

// startTokenWebhook serves TokenReviews, and returns a kubeconfig for it.
func startTokenWebhook(t *testing.T) string {
	t.Helper()
	return startAuthWebhook(t, func(w http.ResponseWriter, req *http.Request) {
		var review authenticationv1.TokenReview
		if err := json.NewDecoder(req.Body).Decode(&review); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		if review.Spec.Token == webhookToken {
			review.Status.Authenticated = true
			review.Status.User = authenticationv1.UserInfo{Username: "webhook-user", Groups: []string{"system:masters"}}
			review.Status.Audiences = review.Spec.Audiences
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(review)
	})
}

// startAuthWebhook serves a webhook with TLS, and returns a kubeconfig for it.
func startAuthWebhook(t *testing.T, handler http.HandlerFunc) (kubeconfig string) {
	t.Helper()
	server, authority := clients.ServeTLS(t, handler, nil)
	config := clientcmdapi.NewConfig()
	config.Clusters["webhook"] = &clientcmdapi.Cluster{Server: server.URL, CertificateAuthorityData: authority}
	config.Contexts["webhook"] = &clientcmdapi.Context{Cluster: "webhook"}
	config.CurrentContext = "webhook"
	kubeconfig = filepath.Join(t.TempDir(), "webhook.kubeconfig")
	expect.NoError(t, clientcmd.WriteToFile(*config, kubeconfig))
	return kubeconfig
}

// whoami returns the authenticated user, or the status code of the refusal.
func (a *annex) whoami(t *testing.T, login func(*restclient.Config), headers ...string) string {
	t.Helper()
	got := send(t, a.httpClientAs(t, login), http.MethodPost, a.URL+"/apis/authentication.k8s.io/v1/selfsubjectreviews",
		`{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview"}`, headers...)
	if got.Code != http.StatusCreated {
		return fmt.Sprint(got.Code)
	}
	var review authenticationv1.SelfSubjectReview
	got.Into(t, &review)
	return review.Status.UserInfo.Username + " " + strings.Join(review.Status.UserInfo.Groups, ",")
}

func TestAuthenticationMethods(t *testing.T) {
	t.Parallel()
	e := startWithAllAuthenticators(t)
	masters := map[string]any{"groups": []string{"system:masters"}}
	with := func(name string, value any) map[string]any {
		return map[string]any{"groups": []string{"system:masters"}, name: value}
	}
	foreign := oidcissuer.New(t)
	poll.UntilDone(t, "the issuer's keys", func() (bool, string) {
		got := e.whoami(t, bearerToken(e.issuer.Token(t, masters)))
		return got != "401", got
	})
	proxy := clientCertificate(e.proxies.issue(t, "front-proxy"))
	carol := clientCertificate(e.users.issue(t, "carol", "system:masters"))
	carolWithToken := func(config *restclient.Config) {
		carol(config)
		bearerToken(webhookToken)(config)
	}
	const asMaster = " system:masters,system:authenticated"
	for name, test := range map[string]struct {
		login   func(*restclient.Config)
		headers []string
		want    string
	}{
		"static token":             {login: bearerToken(masterToken), want: "alice" + asMaster},
		"client certificate":       {login: carol, want: "carol" + asMaster},
		"front proxy":              {login: proxy, headers: []string{"X-Remote-User", "dora", "X-Remote-Group", "system:masters"}, want: "dora" + asMaster},
		"front proxy without user": {login: proxy, want: "401"},
		"not the front proxy":      {login: clientCertificate(e.proxies.issue(t, "mallory")), headers: []string{"X-Remote-User", "dora", "X-Remote-Group", "system:masters"}, want: "401"},
		"certificate and headers":  {login: carol, headers: []string{"X-Remote-User", "dora"}, want: "carol" + asMaster},
		"only headers":             {headers: []string{"X-Remote-User", "dora", "X-Remote-Group", "system:masters"}, want: "401"},
		"JWT":                      {login: bearerToken(e.issuer.Token(t, masters)), want: "jwt:alice" + asMaster},
		"expired JWT":              {login: bearerToken(e.issuer.Token(t, with("exp", time.Now().Add(-time.Minute).Unix()))), want: "401"},
		"JWT for another audience": {login: bearerToken(e.issuer.Token(t, with("aud", "vault"))), want: "401"},
		"JWT of a foreign issuer":  {login: bearerToken(foreign.Token(t, masters)), want: "401"},
		"JWT of a foreign key":     {login: bearerToken(foreign.Token(t, with("iss", e.issuer.URL))), want: "401"},
		"unsigned JWT":             {login: bearerToken(e.issuer.Unsigned(t)), want: "401"},
		"webhook":                  {login: bearerToken(webhookToken), want: "webhook-user" + asMaster},
		"unknown token":            {login: bearerToken("6f1ed002"), want: "401"},
		"no credentials":           {want: "401"},
		"certificate and token":    {login: carolWithToken, want: "carol" + asMaster},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := e.whoami(t, test.login, test.headers...); got != test.want {
				t.Errorf("it is %q, want %q", got, test.want)
			}
		})
	}
	t.Run("paths without a login", func(t *testing.T) { t.Parallel(); testOpenPaths(t, e.annex) })
	t.Run("token reviews", func(t *testing.T) { t.Parallel(); testTokenReviews(t, e) })
}

// testOpenPaths checks that anonymous requests are allowed for the paths of the configuration only, not
// for the default paths, and that authorization still applies to them.
func testOpenPaths(t *testing.T, a *annex) {
	anonymous := a.httpClientAs(t, nil)
	for path, want := range map[string][]int{
		"/readyz":  {http.StatusOK},
		"/version": {http.StatusOK, http.StatusForbidden},
		"/livez":   {http.StatusUnauthorized},
		"/healthz": {http.StatusUnauthorized},
		"/api":     {http.StatusUnauthorized},
		"/metrics": {http.StatusUnauthorized},
	} {
		if got := send(t, anonymous, http.MethodGet, a.URL+path, ""); !slices.Contains(want, got.Code) {
			t.Errorf("%s: %s, want %d", path, got, want)
		}
	}
	send(t, a.httpClientAs(t, bearerToken("6f1ed002")), http.MethodGet, a.URL+"/readyz", "").Expect(t, http.StatusUnauthorized, "an unknown token on an open path")
}

func testTokenReviews(t *testing.T, e *authenticators) {
	for name, test := range map[string]struct {
		token string
		user  string // empty if it is refused
	}{
		"static":          {masterToken, "alice"},
		"JWT":             {e.issuer.Token(t, nil), "jwt:alice"},
		"webhook":         {webhookToken, "webhook-user"},
		"expired JWT":     {e.issuer.Token(t, map[string]any{"exp": 1}), ""},
		"unknown":         {"6f1ed002", ""},
		"spaces":          {"  ", ""},
		"with line break": {"a\nb", ""},
	} {
		review := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: test.token}}
		answer, err := e.Kube.AuthenticationV1().TokenReviews().Create(t.Context(), review, metav1.CreateOptions{})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if got := answer.Status; got.Authenticated != (test.user != "") || got.User.Username != test.user {
			t.Errorf("%s: %+v, want %q", name, got, test.user)
		}
	}
	_, err := e.Kube.AuthenticationV1().TokenReviews().Create(t.Context(), &authenticationv1.TokenReview{}, metav1.CreateOptions{})
	expect.Error(t, err, "token is required")
	got := send(t, e.httpClientAs(t, bearerToken(outsiderToken)), http.MethodPost, e.URL+"/apis/authentication.k8s.io/v1/tokenreviews",
		`{"apiVersion":"authentication.k8s.io/v1","kind":"TokenReview","spec":{"token":"`+masterToken+`"}}`)
	got.Expect(t, http.StatusForbidden, "a user without rights may create TokenReviews")
}

func TestAuthenticationReload(t *testing.T) {
	t.Parallel()
	first, second := oidcissuer.New(t), oidcissuer.New(t)
	path := writeFile(t, "authentication.yaml", []byte(issuersConfig(first)))
	a := startAnnex(t, "--authentication-config="+path)
	masters := map[string]any{"groups": []string{"system:masters"}}
	wait := func(issuer *oidcissuer.Issuer, want string) {
		t.Helper()
		poll.UntilDone(t, "a login as "+want, func() (bool, string) {
			got := a.whoami(t, bearerToken(issuer.Token(t, masters)))
			return strings.HasPrefix(got, want), got
		})
	}
	wait(first, "jwt:alice")
	wait(second, "401")
	expect.NoError(t, os.WriteFile(path, []byte("jwt: broken"), 0o600))
	wait(first, "jwt:alice")
	expect.NoError(t, os.WriteFile(path, []byte(issuersConfig(second)), 0o600))
	wait(second, "jwt:alice")
	wait(first, "401")
}

// Both CA files are reloaded, and a CA is never trusted for users and for front proxies.
func TestClientCertificatesAreNotFrontProxies(t *testing.T) {
	t.Parallel()
	users, proxies := newAuthority(t), newAuthority(t)
	usersFile := users.file(t)
	a := startAnnex(t, "--client-ca-file="+usersFile, "--requestheader-client-ca-file="+proxies.file(t))
	asDora := []string{"X-Remote-User", "dora", "X-Remote-Group", "system:masters"}
	proxy := clientCertificate(proxies.issue(t, "proxy"))
	wait := func(what string, login func(*restclient.Config), want string, headers ...string) {
		t.Helper()
		poll.UntilDone(t, what, func() (bool, string) {
			got := a.whoami(t, login, headers...)
			return strings.HasPrefix(got, want), got
		})
	}
	wait("the proxy authenticates others", proxy, "dora", asDora...)

	both := proxies.renewed(t, proxies)
	mallory := clientCertificate(both.issue(t, "mallory"))
	trusted := func(authorities ...*authority) {
		t.Helper()
		var bundle []byte
		for _, one := range authorities {
			bundle = append(bundle, certificatePEM(one.certificate)...)
		}
		expect.NoError(t, os.WriteFile(usersFile, bundle, 0o600))
	}
	trusted(users, both)
	wait("the CA of users is reloaded", mallory, "mallory")
	for name, login := range map[string]func(*restclient.Config){"mallory": mallory, "proxy": proxy} {
		if got := a.whoami(t, login, asDora...); !strings.HasPrefix(got, name) {
			t.Errorf("with headers %s is %s", name, got)
		}
	}
	trusted(users)
	wait("the proxy authenticates others again", proxy, "dora", asDora...)

	for name, authority := range map[string]*authority{"the same key": both, "an intermediate": users.renewed(t, proxies)} {
		_, err := testserver.TryStartIn(t, t.TempDir(), "--client-ca-file="+authority.file(t), "--requestheader-client-ca-file="+proxies.file(t))
		if err == nil {
			t.Errorf("%s: annex starts", name)
			continue
		}
		expect.Error(t, err, "--requestheader-client-ca-file", "--requestheader-allowed-names")
	}
}

func TestSelfSubjectReviewOfImpersonatedUser(t *testing.T) {
	t.Parallel()
	a := sharedAnnex(t)
	config := restclient.CopyConfig(a.AnnexConfig)
	config.Impersonate = restclient.ImpersonationConfig{UserName: "bob", UID: "7", Groups: []string{"system:masters"}, Extra: map[string][]string{"example.com/tenant": {"blue"}}}
	annexKube, err := kubernetes.NewForConfig(config)
	expect.NoError(t, err)
	answer := expect.Create(t, annexKube.AuthenticationV1().SelfSubjectReviews(), &authenticationv1.SelfSubjectReview{})
	got := answer.Status.UserInfo
	if got.Username != "bob" || got.UID != "7" || !slices.Contains(got.Groups, "system:masters") || !slices.Equal(got.Extra["example.com/tenant"], []string{"blue"}) {
		t.Errorf("it is %+v", got)
	}
}
