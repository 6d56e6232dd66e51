// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package rbac

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/annex-dev/annex/pkg/controller/framework/controllertest"
	"github.com/annex-dev/annex/pkg/test/expect"
	"github.com/annex-dev/annex/pkg/test/poll"
)

func ensure(t *testing.T, annexKube *fake.Clientset) {
	t.Helper()
	expect.NoError(t, Ensure(t.Context(), annexKube.RbacV1()))
}

func getRole(t *testing.T, annexKube *fake.Clientset, name string) *rbacv1.ClusterRole {
	t.Helper()
	role := expect.Get(t, annexKube.RbacV1().ClusterRoles(), name)
	return role
}

func getBinding(t *testing.T, annexKube *fake.Clientset, name string) *rbacv1.ClusterRoleBinding {
	t.Helper()
	binding := expect.Get(t, annexKube.RbacV1().ClusterRoleBindings(), name)
	return binding
}

func updateRole(t *testing.T, annexKube *fake.Clientset, role *rbacv1.ClusterRole) {
	t.Helper()
	expect.Update(t, annexKube.RbacV1().ClusterRoles(), role)
}

func updateBinding(t *testing.T, annexKube *fake.Clientset, binding *rbacv1.ClusterRoleBinding) {
	t.Helper()
	expect.Update(t, annexKube.RbacV1().ClusterRoleBindings(), binding)
}

// has reports whether one of the rules has a verb on a resource of the core group.
func has(role *rbacv1.ClusterRole, verb, resource string) bool {
	return slices.ContainsFunc(role.Rules, func(rule rbacv1.PolicyRule) bool {
		return slices.Contains(rule.Verbs, verb) && slices.Contains(rule.Resources, resource)
	})
}

func TestEnsureMakesDefaults(t *testing.T) {
	t.Parallel()
	annexKube := fake.NewClientset()
	ensure(t, annexKube)

	roles, err := annexKube.RbacV1().ClusterRoles().List(t.Context(), metav1.ListOptions{LabelSelector: "kubernetes.io/bootstrapping=rbac-defaults"})
	expect.NoError(t, err)
	var names []string
	for _, role := range roles.Items {
		names = append(names, role.Name)
		if len(role.Rules) == 0 {
			t.Errorf("%s has no rules", role.Name)
		}
		if role.Annotations[rbacv1.AutoUpdateAnnotationKey] != "true" {
			t.Errorf("%s is not annotated as one that may be brought up to date", role.Name)
		}
	}
	slices.Sort(names)
	want := []string{
		"admin", "annex:hosting-edit", "annex:hosting-view", "cluster-admin", "edit",
		"system:aggregate-to-admin", "system:aggregate-to-edit", "system:aggregate-to-view", "system:auth-delegator", "system:basic-user",
		"system:discovery", "system:monitoring", "system:public-info-viewer", "system:service-account-issuer-discovery", "view",
	}
	expect.Equal(t, want, names, "roles")
	for _, test := range []struct {
		verb, resource    string
		view, edit, admin bool
	}{
		{"get", "configmaps", true, true, true}, {"update", "configmaps", false, true, true},
		{"get", "secrets", false, true, true}, {"create", "serviceaccounts/token", false, true, true},
		{"get", "roles", false, false, true}, {"create", "rolebindings", false, false, true},
		{"update", "resourcequotas", false, false, false}, {"update", "namespaces", false, false, false},
	} {
		for name, want := range map[string]bool{"view": test.view, "edit": test.edit, "admin": test.admin} {
			if got := has(getRole(t, annexKube, name), test.verb, test.resource); got != want {
				t.Errorf("%s may %s %s: %t, want %t", name, test.verb, test.resource, got, want)
			}
		}
	}
	subjects := getBinding(t, annexKube, "system:public-info-viewer").Subjects
	if len(subjects) != 2 || subjects[0].Name != "system:authenticated" || subjects[1].Name != "system:unauthenticated" {
		t.Errorf("public information is for %v", subjects)
	}
	if _, err := annexKube.RbacV1().ClusterRoleBindings().Get(t.Context(), "system:auth-delegator", metav1.GetOptions{}); err == nil {
		t.Error("access reviews of others are permitted by default")
	}

	annexKube.ClearActions()
	ensure(t, annexKube)
	for _, action := range annexKube.Actions() {
		if action.GetVerb() != "get" && action.GetVerb() != "list" {
			t.Errorf("%s %s at the second start", action.GetVerb(), action.GetResource().Resource)
		}
	}
}

func TestEnsureKeepsAdditions(t *testing.T) {
	t.Parallel()
	annexKube := fake.NewClientset()
	ensure(t, annexKube)

	added := rbacv1.PolicyRule{Verbs: []string{"get"}, APIGroups: []string{"example.com"}, Resources: []string{"widgets"}}
	role := getRole(t, annexKube, "system:discovery")
	role.Rules = append(role.Rules, added)
	role.Labels["mine"] = "yes"
	updateRole(t, annexKube, role)
	extended := getRole(t, annexKube, "view")
	extended.AggregationRule.ClusterRoleSelectors = append(extended.AggregationRule.ClusterRoleSelectors, metav1.LabelSelector{MatchLabels: map[string]string{"mine": "yes"}})
	updateRole(t, annexKube, extended)
	binding := getBinding(t, annexKube, "system:monitoring")
	friend := rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: "User", Name: "prometheus"}
	binding.Subjects = append(binding.Subjects, friend)
	updateBinding(t, annexKube, binding)

	ensure(t, annexKube)
	role = getRole(t, annexKube, "system:discovery")
	if !has(role, "get", "widgets") || role.Labels["mine"] != "yes" {
		t.Errorf("what was added is gone: %v, %v", role.Rules, role.Labels)
	}
	if extended = getRole(t, annexKube, "view"); len(extended.AggregationRule.ClusterRoleSelectors) != 2 || !has(extended, "get", "widgets") {
		t.Errorf("view gathers by %v, and has %v", extended.AggregationRule, extended.Rules)
	}
	if subjects := getBinding(t, annexKube, "system:monitoring").Subjects; !slices.Contains(subjects, friend) {
		t.Errorf("subjects %v, want the one that was added among them", subjects)
	}
}

func TestEnsureRepairs(t *testing.T) {
	t.Parallel()
	for _, protected := range []bool{false, true} {
		annexKube := fake.NewClientset()
		ensure(t, annexKube)
		annotation := map[bool]string{false: "true", true: "false"}[protected]
		role := getRole(t, annexKube, "system:aggregate-to-edit")
		role.Rules = nil
		role.Annotations[rbacv1.AutoUpdateAnnotationKey] = annotation
		updateRole(t, annexKube, role)
		binding := getBinding(t, annexKube, "system:discovery")
		binding.Subjects = nil
		binding.Annotations[rbacv1.AutoUpdateAnnotationKey] = annotation
		updateBinding(t, annexKube, binding)
		other := getBinding(t, annexKube, "system:basic-user")
		other.RoleRef.Name = "view"
		other.Annotations[rbacv1.AutoUpdateAnnotationKey] = annotation
		updateBinding(t, annexKube, other)

		ensure(t, annexKube)
		if got := has(getRole(t, annexKube, "edit"), "get", "secrets"); got == protected {
			t.Errorf("protected %t: edit may read secrets: %t", protected, got)
		}
		if got := len(getBinding(t, annexKube, "system:discovery").Subjects); got == 0 != protected {
			t.Errorf("protected %t: %d subjects may discover", protected, got)
		}
		if got := getBinding(t, annexKube, "system:basic-user").RoleRef.Name; (got == "view") != protected {
			t.Errorf("protected %t: bound to %s", protected, got)
		}
	}
}

func TestSettle(t *testing.T) {
	t.Parallel()
	selector := func(label string) metav1.LabelSelector {
		return metav1.LabelSelector{MatchLabels: map[string]string{label: "true"}}
	}
	gathers := func(name string, labels map[string]string, selectors ...metav1.LabelSelector) *rbacv1.ClusterRole {
		return &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}, AggregationRule: &rbacv1.AggregationRule{ClusterRoleSelectors: selectors}}
	}
	gives := func(name, label string, rules ...rbacv1.PolicyRule) *rbacv1.ClusterRole {
		role := clusterRole(name, rules...)
		role.Labels = map[string]string{label: "true"}
		return role
	}
	a, b := at("get")("/a"), at("get")("/b")
	roles := []*rbacv1.ClusterRole{
		gathers("top", nil, selector("to-top")),
		gathers("middle", map[string]string{"to-top": "true"}, selector("to-middle")),
		gives("one", "to-middle", a, b), gives("two", "to-middle", b),
		gathers("circle-1", map[string]string{"circle": "true"}, selector("circle"), selector("to-top")),
		gathers("circle-2", map[string]string{"circle": "true"}, selector("circle")),
		gathers("broken", nil, metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "k", Operator: "Like"}}}),
	}
	// Rules that a user writes into an aggregated role are reverted.
	roles[0].Rules = []rbacv1.PolicyRule{at("get")("/mine")}
	lonely := gathers("lonely", nil, selector("none"))
	lonely.Rules = []rbacv1.PolicyRule{a}
	roles = append(roles, lonely)

	changed, err := settle(t.Context(), roles)
	if err == nil || !strings.Contains(err.Error(), "cluster role broken") {
		t.Errorf("error %v, want one that names the broken role", err)
	}
	got := map[string][]rbacv1.PolicyRule{}
	for _, role := range changed {
		got[role.Name] = role.Rules
	}
	want := map[string][]rbacv1.PolicyRule{"top": {a, b}, "middle": {a, b}, "circle-1": {a, b}, "circle-2": {a, b}, "lonely": nil}
	expect.Equal(t, want, got, "changed")
	if roles[1].Rules != nil {
		t.Error("what was given was changed")
	}
}

// Not parallel: it counts allocations.
func TestSettleIsLinear(t *testing.T) {
	whole := aggregated("all")
	expect.Linear(t, 200, func(size int) func() {
		part := labelled(clusterRole("part"), "all")
		for i := range size {
			part.Rules = append(part.Rules, on("", "get")(fmt.Sprintf("widgets%d", i)))
		}
		return func() {
			_, err := settle(t.Context(), []*rbacv1.ClusterRole{whole, part})
			expect.NoError(t, err)
		}
	})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := settle(ctx, []*rbacv1.ClusterRole{whole})
	expect.Error(t, err, "context canceled")
}

func TestController(t *testing.T) {
	t.Parallel()
	annexKube := fake.NewClientset(aggregated("all"))
	kinds := informers.NewSharedInformerFactory(annexKube, 0)
	c, err := New(Config{AnnexClusterRoles: annexKube.RbacV1().ClusterRoles(), ClusterRoles: kinds.Rbac().V1().ClusterRoles().Informer()})
	expect.NoError(t, err)
	controllertest.Run(t, c, 1, kinds)
	kinds.WaitForCacheSyncWithContext(t.Context())

	part := labelled(clusterRole("part", on("", "get")("widgets")), "all")
	expect.Create(t, annexKube.RbacV1().ClusterRoles(), part)
	awaitRule(t, annexKube, "all", true)
	part.Labels = nil
	updateRole(t, annexKube, part)
	awaitRule(t, annexKube, "all", false)
}

func awaitRule(t *testing.T, annexKube *fake.Clientset, name string, want bool) {
	t.Helper()
	poll.UntilDone(t, fmt.Sprintf("%s has the rule: %t", name, want), func() (bool, string) {
		role := getRole(t, annexKube, name)
		return has(role, "get", "widgets") == want, fmt.Sprint(role.Rules)
	})
}
