// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/annex-dev/annex/pkg/storage/layer/corruption"
	"github.com/annex-dev/annex/pkg/test/expect"
	"github.com/annex-dev/annex/pkg/test/poll"
	"github.com/annex-dev/annex/pkg/test/testserver"
)

// allRules match every write.
func allRules() []admissionregistrationv1.RuleWithOperations {
	return []admissionregistrationv1.RuleWithOperations{{
		Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.OperationAll},
		Rule:       admissionregistrationv1.Rule{APIGroups: []string{"*"}, APIVersions: []string{"*"}, Resources: []string{"*/*"}},
	}}
}

// Webhooks that match everything and are down, and a policy that denies everything, can
// be removed again. annex starts with them, and creates its own objects if they are missing.
func TestAdmissionMatchingEverythingCanBeRemoved(t *testing.T) {
	t.Parallel()
	a := startAnnex(t)
	down, total := unreachable(t), func(h *hook) { h.Rules, h.NamespaceSelector = allRules(), nil }
	for _, install := range []func(*testing.T, string, ...hook){a.installMutatingWebhooks, a.installValidatingWebhooks} {
		install(t, "down", newWebhook("", "down", down, total))
	}
	all := &admissionregistrationv1.MatchResources{ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{RuleWithOperations: allRules()[0]}}}
	a.createPolicy(t, "closed", policySpec(t, "validations: [{expression: 'false', message: closed}]", all), nil)
	waitForRefusal(t, "a configmap", func() error {
		_, err := a.tryConfigMap(t, "default", "one", true)
		return err
	}, "connection refused")
	a.removeStartUpObjects(t)

	a.Stop(t)
	b := newAnnex(t, testserver.StartIn(t, a.DataDir))
	for _, path := range []string{"/api/v1/namespaces/annex-system", "/apis/rbac.authorization.k8s.io/v1/clusterroles/view"} {
		b.get(t, path).Expect(t, http.StatusOK, "%s is not there after a restart", path)
	}
	waitForRefusal(t, "a configmap after a restart", func() error {
		_, err := b.tryConfigMap(t, "default", "one", true)
		return err
	}, "connection refused")

	b.removePolicyAndWebhooks(t)
	poll.UntilNoError(t, "everything is allowed again", func() error {
		_, err := b.tryConfigMap(t, "default", "one", true)
		return err
	})
}

// removeStartUpObjects deletes some of the objects that annex creates at its start,
// directly from etcd.
func (a *annex) removeStartUpObjects(t *testing.T) {
	t.Helper()
	annexEtcd := a.etcd(t)
	for _, key := range []string{"/annex/namespaces/annex-system", "/annex/clusterroles/view"} {
		deleted, err := annexEtcd.Delete(t.Context(), key)
		expect.NoError(t, err)
		if deleted.Deleted != 1 {
			t.Fatalf("etcd has no key %s", key)
		}
	}
}

// removePolicyAndWebhooks begins with the policy: as in Kubernetes it applies to
// webhooks, but not to policies.
func (a *annex) removePolicyAndWebhooks(t *testing.T) {
	t.Helper()
	configurations := a.Kube.AdmissionregistrationV1()
	expect.Succeeds(t, configurations.ValidatingAdmissionPolicyBindings().Delete(t.Context(), "closed", metav1.DeleteOptions{}), "delete the binding of a policy on everything")
	poll.UntilNoError(t, "a webhook on everything can be changed", func() error {
		mutating, err := configurations.MutatingWebhookConfigurations().Get(t.Context(), "down", metav1.GetOptions{})
		if err != nil {
			return err
		}
		mutating.Webhooks[0].FailurePolicy = new(admissionregistrationv1.Ignore)
		_, err = configurations.MutatingWebhookConfigurations().Update(t.Context(), mutating, metav1.UpdateOptions{})
		return err
	})
	expect.Succeeds(t, configurations.ValidatingWebhookConfigurations().Delete(t.Context(), "down", metav1.DeleteOptions{}), "delete a webhook on everything")
}

// TestUnreadableAdmissionConfiguration damages a policy, a binding and a webhook configuration:
// writes are refused, before and after a restart, until the administrator deletes it.
func TestUnreadableAdmissionConfiguration(t *testing.T) {
	t.Parallel()
	for _, resource := range []string{"validatingadmissionpolicies", "validatingadmissionpolicybindings", "validatingwebhookconfigurations"} {
		t.Run(resource, func(t *testing.T) {
			t.Parallel()
			dataDir := t.TempDir()
			p := startProcess(t, dataDir)
			a := clientsOf(t, p, dataDir)
			refusal := "closed by a policy"
			if resource == "validatingwebhookconfigurations" {
				refusal = "not like that"
				a.installValidatingWebhooks(t, "closed", newWebhook("default", "closed", newWebhookServer(t, refuse).client()))
			} else {
				a.createPolicy(t, "closed", policySpec(t, "validations: [{expression: 'false', message: "+refusal+"}]", matchResources("default", "", "configmaps")), nil)
			}
			create := func() error {
				_, err := a.tryConfigMap(t, "default", "one", true)
				return err
			}
			waitForRefusal(t, "a configmap", create, refusal)

			path := "/apis/admissionregistration.k8s.io/v1/" + resource
			etcdPut(t, a.etcd(t), "/annex/"+resource+"/closed", "damaged")
			a.waitForUnreadable(t, path)
			waitForRefusal(t, "a configmap, by the cached configuration", create, refusal)

			p.Kill()
			startProcess(t, dataDir)
			a = servingAt(t, dataDir)
			a.waitForUnreadable(t, path)
			for range 3 {
				if err := create(); !apierrors.IsForbidden(err) && !apierrors.IsServiceUnavailable(err) && !apierrors.IsInternalError(err) {
					t.Errorf("after a restart creating a configmap returns: %v", err)
				}
			}
			if got := a.get(t, "/readyz"); got.Code == http.StatusOK {
				t.Error("it is ready")
			}
			if got := a.request(t, http.MethodDelete, path+"/closed", ""); got.Code < 400 {
				t.Errorf("deleted without the unsafe option: %s", got)
			}
			if got := a.request(t, http.MethodDelete, path+"/closed?"+corruption.UnsafeDelete+"=true", ""); got.Code != http.StatusOK {
				t.Fatalf("delete it: %s", got)
			}
			poll.UntilDone(t, "annex is ready, and writes are allowed", func() (bool, string) {
				ready, err := a.get(t, "/readyz"), create()
				return ready.Code == http.StatusOK && err == nil, fmt.Sprint(ready, err)
			})
		})
	}
}

// waitForUnreadable waits until lists fail with an error that names the object "closed".
func (a *annex) waitForUnreadable(t *testing.T, path string) {
	t.Helper()
	poll.UntilDone(t, path+" cannot be listed", func() (bool, string) {
		got := a.get(t, path)
		return got.Code == http.StatusInternalServerError && strings.Contains(string(got.Body), "closed cannot be read"), got.String()
	})
}
