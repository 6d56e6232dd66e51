// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package escalation_test

import (
	"fmt"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authentication/user"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"

	"github.com/annex-dev/annex/pkg/registry/rbac/escalation"
	"github.com/annex-dev/annex/pkg/standalone/authorization/rbac"
	"github.com/annex-dev/annex/pkg/test/expect"
)

func may(verb, group, resource string, names ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{Verbs: []string{verb}, APIGroups: []string{group}, Resources: []string{resource}, ResourceNames: names}
}

// every has a rule with all combinations of n verbs, groups and resources.
func every(n int) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{Verbs: values(n), APIGroups: values(n), Resources: values(n)}
}

func values(n int) []string {
	values := make([]string, n)
	for i := range values {
		values[i] = fmt.Sprintf("value-%d", i)
	}
	return values
}

func to(name string) []rbacv1.Subject {
	return []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: name}}
}

func ref(kind, name string) rbacv1.RoleRef {
	return rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: kind, Name: name}
}

// newFixture has people with one right each: "local-…" in the namespace ns, the
// others everywhere.
func newFixture() *fixture {
	w := &fixture{}
	for name, rule := range map[string]rbacv1.PolicyRule{
		"getter":          may("get", "", "configmaps"),
		"root":            may("*", "*", "*"),
		"almost-root":     {Verbs: []string{"get", "create", "update", "delete"}, APIGroups: []string{"*"}, Resources: []string{"*"}},
		"escalator":       may("escalate", rbacv1.GroupName, "roles"),
		"named-escalator": may("escalate", rbacv1.GroupName, "clusterroles", "x"),
		"binder":          may("bind", rbacv1.GroupName, "clusterroles", "secret-getter"),
		"role-binder":     may("bind", rbacv1.GroupName, "roles"),
		"secret-getter":   may("get", "", "secrets"),
		"many":            may("get", "", "a", values(5000)...),
	} {
		w.clusterRoles = append(w.clusterRoles, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: []rbacv1.PolicyRule{rule}})
		w.clusterRoleBindings = append(w.clusterRoleBindings, &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: name}, RoleRef: ref("ClusterRole", name), Subjects: to(name)})
		w.roleBindings = append(w.roleBindings, &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}, RoleRef: ref("ClusterRole", name), Subjects: to("local-" + name)})
	}
	w.roles = append(w.roles, &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "secret-getter"}, Rules: []rbacv1.PolicyRule{may("get", "", "secrets")}})
	admin := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "cluster-admin"}, Rules: []rbacv1.PolicyRule{
		may("*", "*", "*"), {Verbs: []string{"*"}, NonResourceURLs: []string{"*"}},
	}}
	w.clusterRoles = append(w.clusterRoles, admin)
	w.clusterRoleBindings = append(w.clusterRoleBindings, &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "admin"}, RoleRef: ref("ClusterRole", "cluster-admin"), Subjects: to("cluster-admin")})
	return w
}

func TestGuard(t *testing.T) {
	t.Parallel()
	w := newFixture()
	guard := escalation.Guard{Authorizer: w.authorizer(t), Resolver: rbac.Resolver{Source: w}}
	meta := metav1.ObjectMeta{Name: "x"}
	role := func(rules ...rbacv1.PolicyRule) runtime.Object { return &rbacv1.Role{ObjectMeta: meta, Rules: rules} }
	clusterRole := func(rules ...rbacv1.PolicyRule) *rbacv1.ClusterRole {
		return &rbacv1.ClusterRole{ObjectMeta: meta, Rules: rules}
	}
	binding := func(kind, name string) runtime.Object {
		return &rbacv1.RoleBinding{ObjectMeta: meta, RoleRef: ref(kind, name)}
	}
	clusterBinding := func(name string) runtime.Object {
		return &rbacv1.ClusterRoleBinding{ObjectMeta: meta, RoleRef: ref("ClusterRole", name)}
	}
	aggregating := clusterRole()
	aggregating.AggregationRule = &rbacv1.AggregationRule{ClusterRoleSelectors: []metav1.LabelSelector{{}}}
	getConfigMaps, getSecrets := may("get", "", "configmaps"), may("get", "", "secrets")
	lacksSecrets := " is attempting to grant RBAC permissions not currently held:\n" + `{APIGroups:[""], Resources:["secrets"], Verbs:["get"]}`

	tests := []struct {
		name        string
		caller      string
		groups      []string
		namespace   string
		path        string // the name in the path of a PUT or PATCH
		check       escalation.Check
		object, old runtime.Object
		want        string
	}{
		{name: "role with own rights", caller: "local-getter", namespace: "ns", check: guard.Role, object: role(getConfigMaps)},
		{name: "role with own rights everywhere", caller: "getter", namespace: "ns", check: guard.Role, object: role(getConfigMaps)},
		{
			name: "role with own rights elsewhere", caller: "local-secret-getter", namespace: "elsewhere", check: guard.Role, object: role(getSecrets),
			want: `roles.rbac.authorization.k8s.io "x" is forbidden: user "local-secret-getter" (groups=[])` + lacksSecrets,
		},
		{
			name: "role with more", caller: "getter", groups: []string{"g"}, namespace: "ns", check: guard.Role, object: role(getConfigMaps, getSecrets),
			want: `roles.rbac.authorization.k8s.io "x" is forbidden: user "getter" (groups=["g"])` + lacksSecrets,
		},
		{
			name: "verbs are merged", caller: "alice", namespace: "ns", check: guard.Role,
			object: role(rbacv1.PolicyRule{Verbs: []string{"get", "list"}, APIGroups: []string{""}, Resources: []string{"b", "a"}}),
			want: `roles.rbac.authorization.k8s.io "x" is forbidden: user "alice" (groups=[]) is attempting to grant RBAC permissions not currently held:` + "\n" +
				`{APIGroups:[""], Resources:["a"], Verbs:["get" "list"]}` + "\n" + `{APIGroups:[""], Resources:["b"], Verbs:["get" "list"]}`,
		},
		{name: "masters", caller: "alice", groups: []string{"system:masters"}, namespace: "ns", check: guard.Role, object: role(may("*", "*", "*"))},
		{name: "escalate", caller: "escalator", namespace: "ns", check: guard.Role, object: role(may("*", "*", "*"))},
		{name: "escalate here", caller: "local-escalator", namespace: "ns", check: guard.Role, object: role(may("*", "*", "*"))},
		{name: "escalate elsewhere", caller: "local-escalator", namespace: "elsewhere", check: guard.Role, object: role(getSecrets), want: "is forbidden"},
		{name: "escalate something else", caller: "escalator", check: guard.ClusterRole, object: clusterRole(getSecrets), want: "is forbidden"},
		{name: "escalate by name", caller: "named-escalator", path: "x", check: guard.ClusterRole, object: clusterRole(getSecrets)},
		{name: "escalate by another name", caller: "named-escalator", path: "y", check: guard.ClusterRole, object: clusterRole(getSecrets), want: "is forbidden"},
		{name: "escalate a new one by name", caller: "named-escalator", check: guard.ClusterRole, object: clusterRole(getSecrets), want: "is forbidden"},

		{name: "many rights", caller: "almost-root", namespace: "ns", check: guard.Role, object: role(may("get", "", "a", values(100_000)...))},
		{
			name: "too many rights", caller: "almost-root", namespace: "ns", check: guard.Role, object: role(every(1000)),
			want: `roles.rbac.authorization.k8s.io "x" is forbidden: the rules grant 1000000000 rights, too many to compare with those of user "almost-root"`,
		},
		{name: "too many rights of a name", caller: "almost-root", namespace: "ns", check: guard.Role, object: role(may("get", "", "a", values(100_001)...)), want: "the rules grant 100001 rights"},
		{name: "too many comparisons", caller: "many", namespace: "ns", check: guard.Role, object: role(may("get", "", "a", values(10_000)...)), want: "the rules grant 10000 rights"},
		{name: "too many rights with escalate", caller: "escalator", namespace: "ns", check: guard.Role, object: role(every(1000))},

		{name: "cluster role with own rights", caller: "getter", check: guard.ClusterRole, object: clusterRole(getConfigMaps)},
		{
			name: "cluster role with own rights in a namespace", caller: "local-secret-getter", namespace: "ns", check: guard.ClusterRole, object: clusterRole(getSecrets),
			want: `clusterroles.rbac.authorization.k8s.io "x" is forbidden: user "local-secret-getter" (groups=[])` + lacksSecrets,
		},
		{name: "aggregation", caller: "cluster-admin", check: guard.ClusterRole, object: aggregating},
		{
			name: "aggregation with fewer rights", caller: "almost-root", check: guard.ClusterRole, object: aggregating,
			want: `clusterroles.rbac.authorization.k8s.io "x" is forbidden: must have cluster-admin privileges to use the aggregationRule`,
		},
		{name: "aggregation removed", caller: "almost-root", check: guard.ClusterRole, object: clusterRole(), old: aggregating, want: "must have cluster-admin privileges"},
		{name: "aggregation with escalate", caller: "named-escalator", path: "x", check: guard.ClusterRole, object: aggregating, old: clusterRole()},

		{name: "binding to own rights", caller: "secret-getter", namespace: "ns", check: guard.RoleBinding, object: binding("Role", "secret-getter")},
		{name: "binding to own rights here", caller: "local-secret-getter", namespace: "ns", check: guard.RoleBinding, object: binding("ClusterRole", "secret-getter")},
		{
			name: "binding to more", caller: "getter", namespace: "ns", check: guard.RoleBinding, object: binding("Role", "secret-getter"),
			want: `rolebindings.rbac.authorization.k8s.io "x" is forbidden: user "getter" (groups=[])` + lacksSecrets,
		},
		{
			name: "binding everywhere to own rights here", caller: "local-secret-getter", check: guard.ClusterRoleBinding, object: clusterBinding("secret-getter"),
			want: `clusterrolebindings.rbac.authorization.k8s.io "x" is forbidden: user "local-secret-getter" (groups=[])` + lacksSecrets,
		},
		{name: "bind", caller: "binder", check: guard.ClusterRoleBinding, object: clusterBinding("secret-getter")},
		{name: "bind here", caller: "local-binder", namespace: "ns", check: guard.RoleBinding, object: binding("ClusterRole", "secret-getter")},
		{name: "bind elsewhere", caller: "local-binder", check: guard.ClusterRoleBinding, object: clusterBinding("secret-getter"), want: "is forbidden"},
		{name: "bind another", caller: "binder", namespace: "ns", check: guard.RoleBinding, object: binding("ClusterRole", "getter"), want: "is forbidden"},
		{name: "bind a role", caller: "role-binder", namespace: "ns", check: guard.RoleBinding, object: binding("Role", "secret-getter")},
		{name: "bind a cluster role instead", caller: "role-binder", namespace: "ns", check: guard.RoleBinding, object: binding("ClusterRole", "secret-getter"), want: "is forbidden"},
		{name: "bind missing role", caller: "role-binder", namespace: "ns", check: guard.RoleBinding, object: binding("Role", "gone")},
		{
			name: "binding to missing role", caller: "root", namespace: "ns", check: guard.RoleBinding, object: binding("Role", "gone"),
		},
		{
			name: "binding to missing role", caller: "getter", namespace: "ns", check: guard.RoleBinding, object: binding("Role", "gone"),
			want: `roles.rbac.authorization.k8s.io "gone" not found`,
		},
		{
			name: "binding to unsupported kind", caller: "getter", namespace: "ns", check: guard.RoleBinding, object: binding("Frog", "x"),
			want: `RoleBinding.rbac.authorization.k8s.io "x" is invalid: roleRef.kind: Unsupported value: "Frog": supported values: "Role", "ClusterRole"`,
		},
		{name: "binding without namespace", caller: "getter", check: guard.RoleBinding, object: binding("Role", "x"), want: "namespace is required"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			ctx := genericapirequest.WithNamespace(t.Context(), test.namespace)
			ctx = genericapirequest.WithUser(ctx, &user.DefaultInfo{Name: test.caller, Groups: test.groups})
			ctx = genericapirequest.WithRequestInfo(ctx, &genericapirequest.RequestInfo{Name: test.path})
			expect.ErrorOrNone(t, test.check(ctx, test.object, test.old), test.want)
		})
	}
	t.Run("no user", func(t *testing.T) {
		t.Parallel()
		if err := guard.ClusterRole(t.Context(), clusterRole(getConfigMaps), nil); !apierrors.IsForbidden(err) {
			t.Errorf("error %v, want forbidden", err)
		}
	})
}
