// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/annex-dev/annex/pkg/test/expect"
	"github.com/annex-dev/annex/pkg/test/poll"
	"github.com/annex-dev/annex/pkg/test/testserver"
)

// writeTokens writes a token file with a member of system:masters, and bob in builders.
func writeTokens(t *testing.T) string {
	t.Helper()
	return writeFile(t, "tokens.csv", []byte(tokenFile))
}

// kubeAs is a client that logs in with a token.
func (a *annex) kubeAs(t *testing.T, bearer string) kubernetes.Interface {
	t.Helper()
	annexKube, err := kubernetes.NewForConfigAndClient(a.AnnexConfig, a.httpClientAs(t, bearerToken(bearer)))
	expect.NoError(t, err)
	return annexKube
}

func TestAuthorizationModes(t *testing.T) {
	t.Parallel()
	for mode, test := range map[string]struct {
		code   int
		reason string
	}{
		"AlwaysAllow": {http.StatusOK, ""},
		"AlwaysDeny":  {http.StatusForbidden, `secrets is forbidden: User \"bob\" cannot list resource \"secrets\" in API group \"\" in the namespace \"default\": alwaysdeny: Everything is forbidden.`},
	} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			a := startAnnex(t, "--token-auth-file="+writeTokens(t), "--authorization-mode="+mode)
			const path = "/api/v1/namespaces/default/secrets"
			send(t, a.httpClientAs(t, bearerToken(outsiderToken)), http.MethodGet, a.URL+path, "").ExpectText(t, test.code, test.reason, "bob")
			for name, annexHTTP := range map[string]*http.Client{"the administrator": a.HTTP, "a master": a.httpClientAs(t, bearerToken(masterToken))} {
				send(t, annexHTTP, http.MethodGet, a.URL+path, "").Expect(t, http.StatusOK, "%s", name)
			}
			send(t, a.httpClientAs(t, nil), http.MethodGet, a.URL+path, "").Expect(t, http.StatusUnauthorized, "without a login")
		})
	}
}

// A ready annex has read all roles and bindings, so that no request is refused wrongly.
func TestAuthorizationSyncedWhenReady(t *testing.T) {
	t.Parallel()
	dataDir, tokens := t.TempDir(), writeTokens(t)
	first := newAnnex(t, testserver.StartIn(t, dataDir, "--token-auth-file="+tokens))
	first.bind(t, "builders", "default", rbacv1.PolicyRule{Verbs: []string{"list"}, APIGroups: []string{""}, Resources: []string{"secrets"}})
	first.Stop(t)
	again := newAnnex(t, testserver.StartIn(t, dataDir, "--token-auth-file="+tokens))
	send(t, again.httpClientAs(t, bearerToken(outsiderToken)), http.MethodGet, again.URL+"/api/v1/namespaces/default/secrets", "").Expect(t, http.StatusOK, "right after annex was ready")
}

// bind gives a group rights in a namespace.
func (a *annex) bind(t *testing.T, group, namespace string, rules ...rbacv1.PolicyRule) {
	t.Helper()
	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-", Namespace: namespace}, Rules: rules}
	role = expect.Create(t, a.Kube.RbacV1().Roles(namespace), role)
	binding := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: role.Name, Namespace: namespace},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role.Name},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: group}},
	}
	expect.Create(t, a.Kube.RbacV1().RoleBindings(namespace), binding)
}

func TestSubjectAccessReviews(t *testing.T) {
	t.Parallel()
	a := sharedAnnex(t)
	namespace := a.newNamespace(t)
	a.bind(t, "builders", namespace,
		rbacv1.PolicyRule{Verbs: []string{"get", "list"}, APIGroups: []string{""}, Resources: []string{"configmaps"}},
		rbacv1.PolicyRule{Verbs: []string{"create"}, APIGroups: []string{authorizationv1.GroupName}, Resources: []string{"localsubjectaccessreviews"}})
	bob := a.kubeAs(t, outsiderToken)
	listing := &authorizationv1.ResourceAttributes{Namespace: namespace, Verb: "list", Resource: "configmaps",
		LabelSelector: &authorizationv1.LabelSelectorAttributes{RawSelector: "a=b"},
		FieldSelector: &authorizationv1.FieldSelectorAttributes{Requirements: []metav1.FieldSelectorRequirement{{Key: "metadata.name", Operator: metav1.FieldSelectorOpIn, Values: []string{"x"}}}},
	}
	poll.UntilDone(t, "bob may list configmaps", func() (bool, string) {
		review, err := bob.AuthorizationV1().SelfSubjectAccessReviews().Create(t.Context(),
			&authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: listing}}, metav1.CreateOptions{})
		if err != nil {
			return false, err.Error()
		}
		return review.Status.Allowed && review.Status.EvaluationError == "", fmt.Sprintf("%+v", review.Status)
	})
	a.testReviewsOfOthers(t, bob, namespace, listing)

	rules := expect.Create(t, bob.AuthorizationV1().SelfSubjectRulesReviews(), &authorizationv1.SelfSubjectRulesReview{Spec: authorizationv1.SelfSubjectRulesReviewSpec{Namespace: namespace}})
	want := authorizationv1.ResourceRule{Verbs: []string{"get", "list"}, APIGroups: []string{""}, Resources: []string{"configmaps"}}
	found := false
	for _, rule := range rules.Status.ResourceRules {
		found = found || cmp.Equal(rule, want)
	}
	if !found || rules.Status.Incomplete {
		t.Errorf("the rules lack %v: %+v", want, rules.Status)
	}
}

// testReviewsOfOthers reviews the access of others, as the administrator and as bob.
func (a *annex) testReviewsOfOthers(t *testing.T, bob kubernetes.Interface, namespace string, listing *authorizationv1.ResourceAttributes) {
	t.Helper()
	for group, want := range map[string]bool{"builders": true, "strangers": false} {
		spec := authorizationv1.SubjectAccessReviewSpec{User: "carol", Groups: []string{group}, ResourceAttributes: listing}
		review, err := a.Kube.AuthorizationV1().SubjectAccessReviews().Create(t.Context(), &authorizationv1.SubjectAccessReview{Spec: spec}, metav1.CreateOptions{})
		if err != nil || review.Status.Allowed != want || review.Status.Denied {
			t.Errorf("the administrator about %s: %+v, %v", group, review.Status, err)
		}
		local, err := bob.AuthorizationV1().LocalSubjectAccessReviews(namespace).Create(t.Context(), &authorizationv1.LocalSubjectAccessReview{Spec: spec}, metav1.CreateOptions{})
		if err != nil || local.Status.Allowed != want {
			t.Errorf("bob about %s in the namespace: %+v, %v", group, local, err)
		}
	}
	spec := authorizationv1.SubjectAccessReviewSpec{User: "carol", ResourceAttributes: listing}
	_, err := bob.AuthorizationV1().SubjectAccessReviews().Create(t.Context(), &authorizationv1.SubjectAccessReview{Spec: spec}, metav1.CreateOptions{})
	expect.Error(t, err, `User "bob" cannot create resource "subjectaccessreviews" in API group "authorization.k8s.io" at the cluster scope`)
	_, err = bob.AuthorizationV1().LocalSubjectAccessReviews("default").Create(t.Context(), &authorizationv1.LocalSubjectAccessReview{Spec: spec}, metav1.CreateOptions{})
	expect.Error(t, err, `in the namespace "default"`)
	_, err = a.Kube.AuthorizationV1().LocalSubjectAccessReviews("default").Create(t.Context(), &authorizationv1.LocalSubjectAccessReview{Spec: spec}, metav1.CreateOptions{})
	expect.Error(t, err, "spec.resourceAttributes.namespace", "must match metadata.namespace")
	_, err = a.Kube.AuthorizationV1().SubjectAccessReviews().Create(t.Context(), &authorizationv1.SubjectAccessReview{}, metav1.CreateOptions{})
	expect.Error(t, err, "exactly one of nonResourceAttributes or resourceAttributes must be specified", "spec.user", "at least one of user or group must be specified")
}

// startRightsWebhook serves SubjectAccessReviews that allow one user, and returns a
// kubeconfig for it.
func startRightsWebhook(t *testing.T, allowed string) (kubeconfig string) {
	t.Helper()
	return startAuthWebhook(t, func(answer http.ResponseWriter, req *http.Request) {
		var review authorizationv1.SubjectAccessReview
		if err := json.NewDecoder(req.Body).Decode(&review); err != nil {
			http.Error(answer, err.Error(), http.StatusBadRequest)
			return
		}
		review.Status.Allowed = review.Spec.User == allowed
		review.Status.Reason = "webhook"
		_ = json.NewEncoder(answer).Encode(review)
	})
}

const rightsFile = `apiVersion: apiserver.config.k8s.io/v1
kind: AuthorizationConfiguration
authorizers:
- type: RBAC
  name: rbac
`

// A webhook for secrets is added and removed with the file.
func TestAuthorizationConfiguration(t *testing.T) {
	t.Parallel()
	webhook := rightsFile + fmt.Sprintf(`- type: Webhook
  name: about-secrets
  webhook:
    timeout: 5s
    subjectAccessReviewVersion: v1
    matchConditionSubjectAccessReviewVersion: v1
    failurePolicy: NoOpinion
    connectionInfo: {type: KubeConfigFile, kubeConfigFile: %q}
    matchConditions:
    - expression: has(request.resourceAttributes) && request.resourceAttributes.resource == 'secrets'
`, startRightsWebhook(t, "bob"))
	file := filepath.Join(t.TempDir(), "authorization.yaml")
	mustWrite(t, file, []byte(webhook))
	a := startAnnexProcess(t, "--token-auth-file="+writeTokens(t), "--authorization-config="+file)
	bob := a.httpClientAs(t, bearerToken(outsiderToken))
	list := func(resource string) response {
		return send(t, bob, http.MethodGet, a.URL+"/api/v1/namespaces/default/"+resource, "")
	}
	list("secrets").Expect(t, http.StatusOK, "secrets, which the webhook allows")
	list("configmaps").Expect(t, http.StatusForbidden, "configmaps, which the webhook does not match")
	rules, err := a.kubeAs(t, outsiderToken).AuthorizationV1().SelfSubjectRulesReviews().Create(t.Context(),
		&authorizationv1.SelfSubjectRulesReview{Spec: authorizationv1.SelfSubjectRulesReviewSpec{Namespace: "default"}}, metav1.CreateOptions{})
	if err != nil || !rules.Status.Incomplete {
		t.Errorf("the rules are complete, without those of the webhook: %v, %v", rules, err)
	}

	mustWrite(t, file, []byte(strings.Replace(rightsFile, "RBAC", "Rbac", 1)))
	a.wantReloads(t, "failure", 1)
	list("secrets").Expect(t, http.StatusOK, "a broken file changed what is in force")
	mustWrite(t, file, []byte(rightsFile))
	poll.UntilDone(t, "the webhook is removed", func() (bool, string) {
		got := list("secrets")
		return got.Code == http.StatusForbidden, got.String()
	})
	a.wantReloads(t, "success", 1)
}

// wantReloads waits until so many reloads of the authorization configuration are counted.
func (a *annex) wantReloads(t *testing.T, status string, count int) {
	t.Helper()
	poll.Until(t, fmt.Sprintf("%d reloads end in %s", count, status), func() string {
		var counted []string
		for line := range strings.Lines(string(a.get(t, "/metrics").Body)) {
			if strings.HasPrefix(line, "apiserver_authorization_config_controller_automatic_reloads_total{") {
				counted = append(counted, strings.TrimSpace(line))
				if strings.Contains(line, `status="`+status+`"`) && strings.HasSuffix(strings.TrimSpace(line), fmt.Sprintf(" %d", count)) {
					return ""
				}
			}
		}
		return fmt.Sprint(counted)
	})
}
