// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package authorization_test

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/annex-dev/annex/pkg/standalone/authorization"
	"github.com/annex-dev/annex/pkg/test/expect"
)

// roles replaces RBAC: it allows one user and returns a reason for the others.
type roles struct{ allowed string }

var _ authorization.RuleAuthorizer = roles{}

func (r roles) Authorize(_ context.Context, attributes authorizer.Attributes) (authorizer.Decision, string, error) {
	if attributes.GetUser().GetName() == r.allowed {
		return authorizer.DecisionAllow, "", nil
	}
	return authorizer.DecisionNoOpinion, "no role", nil
}

func (r roles) ConditionsAwareAuthorize(ctx context.Context, attributes authorizer.Attributes) authorizer.ConditionsAwareDecision {
	return authorizer.ConditionsAwareDecisionFromParts(r.Authorize(ctx, attributes))
}

func (r roles) EvaluateConditions(context.Context, authorizer.ConditionsAwareDecision, authorizer.ConditionsData) (authorizer.Decision, string, error) {
	return authorizer.DecisionDeny, "", nil
}

func (r roles) RulesFor(ctx context.Context, who user.Info, namespace string) ([]authorizer.ResourceRuleInfo, []authorizer.NonResourceRuleInfo, bool, error) {
	return authorizerfactory.NewAlwaysAllowAuthorizer().RulesFor(ctx, who, namespace)
}

// webhook is a server that allows one user, denies another, and has no opinion on
// others.
type webhook struct {
	*httptest.Server

	mutex sync.Mutex
	asked []authorizationv1.SubjectAccessReviewSpec
	code  int
}

func startWebhook(t *testing.T, allowed, denied string) *webhook {
	t.Helper()
	w := &webhook{code: http.StatusOK}
	w.Server = httptest.NewTLSServer(http.HandlerFunc(func(answer http.ResponseWriter, req *http.Request) {
		var review authorizationv1.SubjectAccessReview
		if err := json.NewDecoder(req.Body).Decode(&review); err != nil {
			http.Error(answer, err.Error(), http.StatusBadRequest)
			return
		}
		w.mutex.Lock()
		w.asked = append(w.asked, review.Spec)
		code := w.code
		w.mutex.Unlock()
		review.Status = authorizationv1.SubjectAccessReviewStatus{
			Allowed: review.Spec.User == allowed,
			Denied:  review.Spec.User == denied,
			Reason:  "the webhook knows " + review.Spec.User,
		}
		answer.WriteHeader(code)
		expect.Succeeds(t, json.NewEncoder(answer).Encode(review))
	}))
	t.Cleanup(w.Close)
	return w
}

func (w *webhook) questions() int {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	return len(w.asked)
}

func (w *webhook) answerWith(code int) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	w.code = code
}

// kubeconfig writes one that reaches the webhook.
func (w *webhook) kubeconfig(t *testing.T, change ...func(*clientcmdapi.Cluster)) string {
	t.Helper()
	cluster := &clientcmdapi.Cluster{
		Server:                   w.URL + "/authorize",
		CertificateAuthorityData: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: w.Certificate().Raw}),
	}
	for _, change := range change {
		change(cluster)
	}
	config := clientcmdapi.NewConfig()
	config.Clusters["webhook"] = cluster
	config.Contexts["webhook"] = &clientcmdapi.Context{Cluster: "webhook"}
	config.CurrentContext = "webhook"
	path := filepath.Join(t.TempDir(), "webhook.kubeconfig")
	expect.NoError(t, clientcmd.WriteToFile(*config, path))
	return path
}

func writeFile(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "authorization.yaml")
	replaceFile(t, path, content)
	return path
}

// replaceFile replaces a file atomically.
func replaceFile(t *testing.T, path, content string) {
	t.Helper()
	expect.NoError(t, os.WriteFile(path+".new", []byte(content), 0o600))
	expect.NoError(t, os.Rename(path+".new", path))
}

// head begins every file.
const head = "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthorizationConfiguration\n"

// withWebhook is a file with a webhook before RBAC.
func withWebhook(kubeconfig, failurePolicy, condition string) string {
	return head + fmt.Sprintf(`authorizers:
- type: Webhook
  name: first
  webhook:
    timeout: 3s
    authorizedTTL: 1ns
    unauthorizedTTL: 1ns
    subjectAccessReviewVersion: v1
    matchConditionSubjectAccessReviewVersion: v1
    failurePolicy: %s
    connectionInfo: {type: KubeConfigFile, kubeConfigFile: %s}
    matchConditions: [{expression: %q}]
- type: RBAC
  name: rbac
`, failurePolicy, kubeconfig, condition)
}

func newAuthorizer(t *testing.T, config authorization.Config) *authorization.Authorizer {
	t.Helper()
	config.RBAC = roles{allowed: "alice"}
	config.OpenPaths = []string{"/readyz"}
	a, err := authorization.New(config)
	expect.NoError(t, err)
	return a
}

// listing are the attributes of listing Secrets.
func listing(name string, groups ...string) authorizer.Attributes {
	return authorizer.AttributesRecord{
		User: &user.DefaultInfo{Name: name, Groups: groups}, Verb: "list", APIVersion: "v1", Resource: "secrets",
		Namespace: "default", ResourceRequest: true,
	}
}

// reading are the attributes of reading a path.
func reading(name, path string) authorizer.Attributes {
	return authorizer.AttributesRecord{User: &user.DefaultInfo{Name: name}, Verb: "get", Path: path}
}

// wants checks one answer.
func wants(t *testing.T, a authorizer.Authorizer, question authorizer.Attributes, want authorizer.Decision, reason string) {
	t.Helper()
	decision, because, err := a.Authorize(t.Context(), question)
	if err != nil || decision != want || because != reason {
		t.Errorf("%s: %v because %q, %v; want %v because %q", question.GetUser().GetName(), decision, because, err, want, reason)
	}
	aware := a.ConditionsAwareAuthorize(t.Context(), question)
	if aware.IsAllow() != (want == authorizer.DecisionAllow) || aware.IsDeny() != (want == authorizer.DecisionDeny) {
		t.Errorf("%s, aware of conditions: %v, want %v", question.GetUser().GetName(), aware, want)
	}
}
