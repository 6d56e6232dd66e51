// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package authentication

import (
	"crypto/x509"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/annex-dev/annex/pkg/pki"
	"github.com/annex-dev/annex/pkg/test/expect"
)

// reviewer is a webhook that knows the token "sesame".
type reviewer struct {
	kubeconfig string
	asked      atomic.Int64
	down       atomic.Bool
	liar       atomic.Bool // returns a wrong audience
}

func newReviewer(t *testing.T) *reviewer {
	t.Helper()
	r := &reviewer{kubeconfig: filepath.Join(t.TempDir(), "webhook.kubeconfig")}
	server := httptest.NewTLSServer(r)
	t.Cleanup(server.Close)
	config := clientcmdapi.NewConfig()
	config.Clusters["webhook"] = &clientcmdapi.Cluster{Server: server.URL, CertificateAuthorityData: pki.EncodeBundle([]*x509.Certificate{server.Certificate()})}
	config.Contexts["webhook"] = &clientcmdapi.Context{Cluster: "webhook"}
	config.CurrentContext = "webhook"
	expect.NoError(t, clientcmd.WriteToFile(*config, r.kubeconfig))
	return r
}

func (r *reviewer) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	r.asked.Add(1)
	var review authenticationv1.TokenReview
	if err := json.NewDecoder(req.Body).Decode(&review); err != nil || r.down.Load() {
		http.Error(w, "not now", http.StatusBadGateway)
		return
	}
	if review.APIVersion == "authentication.k8s.io/v1" && review.Spec.Token == "sesame" {
		review.Status = authenticationv1.TokenReviewStatus{
			Authenticated: true,
			User:          authenticationv1.UserInfo{Username: "ali", UID: "40", Groups: []string{"thieves"}, Extra: map[string]authenticationv1.ExtraValue{"cave": {"open"}}},
			Audiences:     review.Spec.Audiences,
		}
		if r.liar.Load() {
			review.Status.Audiences = []string{"another"}
		}
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(review)
}

func (r *reviewer) authenticator(t *testing.T, ttl time.Duration) authenticator.Token {
	t.Helper()
	webhook, err := NewWebhook(WebhookOptions{ConfigFile: r.kubeconfig, Version: "v1", CacheTTL: ttl}, authenticator.Audiences{"annex"})
	expect.NoError(t, err)
	return webhook
}

func askFor(t *testing.T, webhook authenticator.Token, token string) string {
	t.Helper()
	ctx := authenticator.WithAudiences(t.Context(), authenticator.Audiences{"annex"})
	found, ok, err := webhook.AuthenticateToken(ctx, token)
	switch {
	case err != nil:
		return "error: " + err.Error()
	case !ok:
		return "no user"
	}
	return described(found.User)
}

func TestWebhook(t *testing.T) {
	t.Parallel()
	r := newReviewer(t)
	webhook := r.authenticator(t, time.Hour)
	const known = "ali [thieves] uid 40 map[cave:[open]]"
	for range 3 {
		if got := askFor(t, webhook, "sesame"); got != known {
			t.Errorf("a token that it knows: %s", got)
		}
		if got := askFor(t, webhook, "barley"); got != "no user" {
			t.Errorf("a token that it does not know: %s", got)
		}
	}
	if got := r.asked.Load(); got != 2 {
		t.Errorf("it was asked %d times about 2 tokens", got)
	}
	r.down.Store(true)
	if got := askFor(t, webhook, "sesame"); got != known {
		t.Errorf("a token that it knew, while it is down: %s", got)
	}
}

// No failure of a webhook authenticates a caller, or is cached.
func TestWebhookThatFails(t *testing.T) {
	t.Parallel()
	for name, fail := range map[string]func(*reviewer) *atomic.Bool{
		"down":        func(r *reviewer) *atomic.Bool { return &r.down },
		"for another": func(r *reviewer) *atomic.Bool { return &r.liar },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newReviewer(t)
			webhook := r.authenticator(t, 0)
			fail(r).Store(true)
			if got := askFor(t, webhook, "sesame"); strings.HasPrefix(got, "ali") {
				t.Errorf("it lets in: %s", got)
			}
			fail(r).Store(false)
			if got := askFor(t, webhook, "sesame"); !strings.HasPrefix(got, "ali") {
				t.Errorf("when it is well again: %s", got)
			}
		})
	}
}

// TestWebhookConfigurationRefused leaves the details to the tests of pkg/configfile/kubeconfig.
func TestWebhookConfigurationRefused(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "webhook.kubeconfig")
	_, err := NewWebhook(WebhookOptions{ConfigFile: path, Version: "v1"}, nil)
	expect.Error(t, err, path)
	writeConfig(t, path, "apiVersion: v1\nkind: Config\n")
	_, err = NewWebhook(WebhookOptions{ConfigFile: path, Version: "v1"}, nil)
	expect.Error(t, err, path, "current-context")
}
