// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package health

import (
	"maps"
	"slices"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/annex-dev/annex/artifacts/deploy"
	"github.com/annex-dev/annex/pkg/aggregated/group/grouptest"
	"github.com/annex-dev/annex/pkg/aggregated/maincluster"
	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/test/expect"
)

// tooMany are rights that annex must not have; every fixture denies them.
var tooMany = []string{"get secrets", "update clusterroles.rbac.authorization.k8s.io", "create pods"}

func TestRightsOf(t *testing.T) {
	t.Parallel()
	given, err := rightsOf(deploy.RBAC)
	expect.NoError(t, err)
	var all []string
	for _, r := range slices.Concat(slices.Collect(maps.Values(given))...) {
		all = append(all, r.String())
		if r.Resource == "" || r.Verb == "" || r.Resource == "*" || r.Verb == "*" {
			t.Errorf("%+v is no single right", r)
		}
	}
	for _, want := range []string{
		"create tokenreviews.authentication.k8s.io",
		"create subjectaccessreviews.authorization.k8s.io",
		"watch configmaps extension-apiserver-authentication in kube-system",
		"list namespaces",
		"update resourcequotas/status",
		"delete apiservices.apiregistration.k8s.io",
		"get stores.hosting.annex.dev default",
		"create leases.coordination.k8s.io in annex-system",
		"update leases.coordination.k8s.io annex-controllers in annex-system",
		"watch secrets annex-serving-ca in annex-system",
	} {
		if !slices.Contains(all, want) {
			t.Errorf("annex needs no right to %s", want)
		}
	}
	for _, no := range tooMany {
		if slices.Contains(all, no) {
			t.Errorf("annex needs the right to %s", no)
		}
	}
}

func TestRightsOfRefuses(t *testing.T) {
	t.Parallel()
	const binding = "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRoleBinding\nmetadata: {name: a}\nroleRef: {kind: ClusterRole, name: gone}\n"
	for name, manifest := range map[string]string{"unknown role": binding, "another kind": "apiVersion: v1\nkind: Pod\n", "no YAML": "a: b: c"} {
		if got, err := rightsOf(manifest); err == nil {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestRBACManifest(t *testing.T) {
	t.Parallel()
	o := Options{Service: maincluster.Service{Namespace: "elsewhere", Name: "second", Port: 443}, ServiceAccount: "robot"}
	manifest := o.RBACManifest()
	if strings.Contains(manifest, "namespace: annex-system") || strings.Contains(manifest, "kind: ServiceAccount\n  name: annex\n") {
		t.Error("it is still for annex-system/annex")
	}
	if got := strings.Count(manifest, "- kind: ServiceAccount\n  name: robot\n  namespace: elsewhere\n"); got != 5 {
		t.Errorf("%d of 5 bindings are for elsewhere/robot:\n%s", got, manifest)
	}
	for _, name := range []string{"second-controllers", "second-serving-ca"} {
		if !strings.Contains(manifest, "resourceNames: ["+name+"]\n") {
			t.Errorf("there is no right to %s", name)
		}
	}
	if !strings.Contains(manifest, "  namespace: kube-system\n") {
		t.Error("the binding in kube-system has moved")
	}
	if o := (DefaultOptions("annex")); o.RBACManifest() != deploy.RBAC {
		t.Error("by default it is not the file")
	}
}

func TestRBAC(t *testing.T) {
	t.Parallel()
	denied := func(rights ...string) fixture { return fixture{denied: append(rights, tooMany...)} }
	// rollback is one under way, for which annex got rights for Secrets.
	rollback := func(operation hostingv1alpha1.MigrationOperation, phase hostingv1alpha1.MigrationPhase) fixture {
		role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "annex-hosted-example.com"}}
		role.Rules = []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"pods", "secrets"}, Verbs: []string{"get", "list", "patch"}}}
		migration := &hostingv1alpha1.Migration{ObjectMeta: metav1.ObjectMeta{Name: "m"}, Spec: hostingv1alpha1.MigrationSpec{Group: "example.com", Operation: operation}}
		migration.Status.Phase = phase
		return fixture{denied: tooMany[1:], kube: []runtime.Object{role}, annexObjects: []runtime.Object{migration}}
	}
	const secrets = "may get secrets anywhere"
	tests := map[string]checkTest{
		"all":        {denied(), []want{{LevelOK, "annex (annex-system/annex) has the 63 rights", ""}}},
		"too much":   {fixture{denied: tooMany[1:]}, []want{{LevelOK, "has the 63 rights", ""}, {LevelWarn, "may get secrets anywhere", "kubectl get clusterrolebindings,rolebindings"}}},
		"granted":    {rollback(hostingv1alpha1.MigrationRollback, hostingv1alpha1.MigrationCopying), []want{{LevelOK, "has the 63 rights", ""}, {LevelOK, secrets + ", until the Migration m ends", ""}}},
		"left over":  {rollback(hostingv1alpha1.MigrationRollback, hostingv1alpha1.MigrationCompleted), []want{{LevelOK, "has the 63 rights", ""}, {LevelWarn, secrets, "kubectl get"}}},
		"of a Move":  {rollback(hostingv1alpha1.MigrationMove, hostingv1alpha1.MigrationCopying), []want{{LevelOK, "has the 63 rights", ""}, {LevelWarn, secrets, "kubectl get"}}},
		"no proxy":   {denied("list configmaps extension-apiserver-authentication in kube-system"), []want{{LevelFail, "list configmaps extension-apiserver-authentication", "kubectl -n kube-system create rolebinding annex-authentication-reader --role=extension-apiserver-authentication-reader --serviceaccount=annex-system:annex"}}},
		"no reviews": {denied("create tokenreviews.authentication.k8s.io"), []want{{LevelFail, "create tokenreviews", "kubectl create clusterrolebinding annex-auth-delegator --clusterrole=system:auth-delegator --serviceaccount=annex-system:annex"}}},
		"two roles": {denied("get namespaces", "watch namespaces", "create leases.coordination.k8s.io in annex-system"), []want{
			{LevelFail, "may not get/watch namespaces", "annex doctor --print-rbac | kubectl apply -f -"},
			{LevelFail, "may not create leases.coordination.k8s.io in annex-system", "annex doctor --print-rbac | kubectl apply -f -"},
		}},
	}
	runCheck(t, checkRBAC, tests)
	t.Run("elsewhere", func(t *testing.T) {
		t.Parallel()
		e := denied("get namespaces").environment()
		e.Program, e.ServiceAccount = "kubectl annex", "robot"
		e.Service.Namespace = "elsewhere"
		compare(t, checkRBAC(t.Context(), e), []want{{LevelFail, "annex (elsewhere/robot) may not get namespaces",
			"kubectl annex doctor --print-rbac --publish-service=elsewhere/annex:443 --service-account=robot | kubectl apply -f -"}})
	})
}

func TestGroupsRBAC(t *testing.T) {
	t.Parallel()
	one := []runtime.Object{grouptest.CRD("a.example.com", grouptest.Labelled), grouptest.CRD("b.example.com")}
	const command = "kubectl annex move example.com --print-rights | kubectl apply -f -"
	tests := map[string]checkTest{
		"none":                      {fixture{}, []want{{LevelOK, "no definition that is labelled annex.dev/hosted=true waits for rights", ""}}},
		"let in":                    {fixture{definitions: one}, []want{{LevelOK, "annex may move example.com", ""}}},
		"not let in":                {fixture{definitions: one, denied: []string{"list a.example.com"}}, []want{{LevelFail, "annex may not list a.example.com", command}}},
		"not let in to definitions": {fixture{definitions: one, denied: []string{"update customresourcedefinitions.apiextensions.k8s.io a.example.com"}}, []want{{LevelFail, "annex may not update customresourcedefinitions.apiextensions.k8s.io a.example.com", command}}},
		"no longer": {fixture{
			definitions: one, denied: []string{"list a.example.com", "watch a.example.com"}, apiServices: []runtime.Object{published("v1.example.com")},
		}, []want{{LevelOK, "no definition that is labelled", ""}}},
	}
	runCheck(t, checkGroupsRBAC, tests)
}

func TestParametersOfPolicies(t *testing.T) {
	t.Parallel()
	policy := &admissionregistrationv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "limits"},
		Spec:       admissionregistrationv1.ValidatingAdmissionPolicySpec{ParamKind: &admissionregistrationv1.ParamKind{APIVersion: "rules.example.com/v1", Kind: "Limit"}},
	}
	e := fixture{kube: []runtime.Object{policy}, denied: []string{"watch limits.rules.example.com"}}.environment()
	e.Kube.(*fake.Clientset).Resources = []*metav1.APIResourceList{{
		GroupVersion: "rules.example.com/v1",
		APIResources: []metav1.APIResource{{Name: "limits/status", Kind: "Limit"}, {Name: "limits", Kind: "Limit"}},
	}}
	compare(t, checkGroupsRBAC(t.Context(), e), []want{{LevelWarn, "annex may not watch limits.rules.example.com: the parameters of admission policies limits",
		"--resource=limits.rules.example.com && kubectl label"}})
}
