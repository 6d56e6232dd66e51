// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package rbac_test

import (
	"context"
	"fmt"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/annex-dev/annex/pkg/standalone/authorization/rbac"
	"github.com/annex-dev/annex/pkg/test/expect"
)

// newAuthorizer returns an authorizer whose informers hold the objects.
func newAuthorizer(tb testing.TB, objects ...runtime.Object) *rbac.Authorizer {
	tb.Helper()
	kinds := informers.NewSharedInformerFactory(fake.NewClientset(), 0).Rbac().V1()
	rights, err := rbac.New(kinds)
	expect.NoError(tb, err)
	for _, object := range objects {
		switch object.(type) {
		case *rbacv1.Role:
			err = kinds.Roles().Informer().GetIndexer().Add(object)
		case *rbacv1.ClusterRole:
			err = kinds.ClusterRoles().Informer().GetIndexer().Add(object)
		case *rbacv1.RoleBinding:
			err = kinds.RoleBindings().Informer().GetIndexer().Add(object)
		case *rbacv1.ClusterRoleBinding:
			err = kinds.ClusterRoleBindings().Informer().GetIndexer().Add(object)
		default:
			tb.Fatalf("unexpected type %T", object)
		}
		expect.NoError(tb, err)
	}
	return rights
}

func clusterRole(name string, rules ...rbacv1.PolicyRule) *rbacv1.ClusterRole {
	return &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: rules}
}

func role(namespace, name string, rules ...rbacv1.PolicyRule) *rbacv1.Role {
	return &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Rules: rules}
}

func clusterRoleBinding(name, role string, subjects ...rbacv1.Subject) *rbacv1.ClusterRoleBinding {
	return &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Subjects: subjects,
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
	}
}

func roleBinding(namespace, name, kind, role string, subjects ...rbacv1.Subject) *rbacv1.RoleBinding {
	return &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Subjects: subjects,
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: kind, Name: role},
	}
}

func userSubject(name string) rbacv1.Subject {
	return rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: name}
}

func groupSubject(name string) rbacv1.Subject {
	return rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: name}
}

func serviceAccount(namespace, name string) rbacv1.Subject {
	return rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: name}
}

// may is a rule about resources of one group.
func may(verb, group, resource string, names ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{Verbs: []string{verb}, APIGroups: []string{group}, Resources: []string{resource}, ResourceNames: names}
}

// mayURL is a rule about paths.
func mayURL(verb string, urls ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{Verbs: []string{verb}, NonResourceURLs: urls}
}

// to is a request for objects; resource may have a subresource.
func to(verb, namespace, group, resource, subresource, name string) authorizer.AttributesRecord {
	return authorizer.AttributesRecord{
		Verb: verb, Namespace: namespace, APIGroup: group, Resource: resource, Subresource: subresource, Name: name, ResourceRequest: true,
	}
}

func TestAuthorize(t *testing.T) {
	t.Parallel()
	rights := newAuthorizer(t,
		clusterRole("reader", may("get", "", "configmaps"), mayURL("get", "/metrics")),
		clusterRole("everything", may("*", "*", "*"), mayURL("*", "*")),
		clusterRole("scaler", may("update", "example.com", "*/scale"), may("get", "example.com", "widgets/status")),
		role("ns", "one-secret", may("get", "", "secrets", "mine")),
		clusterRoleBinding("readers", "reader", userSubject("other"), groupSubject("readers"), userSubject("reader")),
		clusterRoleBinding("root", "everything", userSubject("root")),
		clusterRoleBinding("nowhere", "gone", userSubject("lost")),
		clusterRoleBinding("homeless", "reader", serviceAccount("", "homeless")),
		roleBinding("ns", "scalers", "ClusterRole", "scaler", groupSubject("scalers")),
		roleBinding("ns", "mine", "Role", "one-secret", userSubject("alice"), serviceAccount("", "robot"), serviceAccount("other", "robot")),
		roleBinding("ns", "away", "Role", "gone", userSubject("lost")),
		roleBinding("ns", "local-reader", "ClusterRole", "reader", userSubject("local")),
	)
	const no = ""
	tests := []struct {
		name    string
		user    string
		groups  []string
		request authorizer.AttributesRecord
		allowed bool
		reason  string
	}{
		{
			name: "by group everywhere", user: "u", groups: []string{"other", "readers"}, request: to("get", "any", "", "configmaps", no, "x"),
			allowed: true, reason: `RBAC: allowed by ClusterRoleBinding "readers" of ClusterRole "reader" to Group "readers"`,
		},
		{
			name: "the first subject counts", user: "reader", groups: []string{"readers"}, request: to("get", "", "", "configmaps", no, "x"),
			allowed: true, reason: `RBAC: allowed by ClusterRoleBinding "readers" of ClusterRole "reader" to Group "readers"`,
		},
		{
			name: "by user", user: "reader", request: authorizer.AttributesRecord{Verb: "get", Path: "/metrics"},
			allowed: true, reason: `RBAC: allowed by ClusterRoleBinding "readers" of ClusterRole "reader" to User "reader"`,
		},
		{name: "other verb", user: "reader", request: to("list", "any", "", "configmaps", no, no)},
		{name: "other group", user: "reader", request: to("get", "any", "apps", "configmaps", no, "x")},
		{name: "other resource", user: "reader", request: to("get", "any", "", "secrets", no, "x")},
		{name: "subresource", user: "reader", request: to("get", "any", "", "configmaps", "status", "x")},
		{name: "other path", user: "reader", request: authorizer.AttributesRecord{Verb: "get", Path: "/metrics/slis"}},
		{name: "a group is no user", user: "readers", request: to("get", "any", "", "configmaps", no, "x")},
		{name: "a user is no group", user: "u", groups: []string{"reader"}, request: to("get", "any", "", "configmaps", no, "x")},
		{
			name: "everything", user: "root", request: to("frobnicate", "ns", "g", "r", "s", "n"),
			allowed: true, reason: `RBAC: allowed by ClusterRoleBinding "root" of ClusterRole "everything" to User "root"`,
		},
		{
			name: "every path", user: "root", request: authorizer.AttributesRecord{Verb: "post", Path: "/x"},
			allowed: true, reason: `RBAC: allowed by ClusterRoleBinding "root" of ClusterRole "everything" to User "root"`,
		},
		{
			name: "subresource of anything", user: "u", groups: []string{"scalers"}, request: to("update", "ns", "example.com", "widgets", "scale", "w"),
			allowed: true, reason: `RBAC: allowed by RoleBinding "scalers/ns" of ClusterRole "scaler" to Group "scalers"`,
		},
		{
			name: "subresource", user: "u", groups: []string{"scalers"}, request: to("get", "ns", "example.com", "widgets", "status", "w"),
			allowed: true, reason: `RBAC: allowed by RoleBinding "scalers/ns" of ClusterRole "scaler" to Group "scalers"`,
		},
		{name: "without the subresource", user: "u", groups: []string{"scalers"}, request: to("get", "ns", "example.com", "widgets", no, "w")},
		{name: "other namespace", user: "u", groups: []string{"scalers"}, request: to("update", "elsewhere", "example.com", "widgets", "scale", "w")},
		{name: "no namespace", user: "u", groups: []string{"scalers"}, request: to("update", "", "example.com", "widgets", "scale", "w")},
		{
			name: "by name", user: "alice", request: to("get", "ns", "", "secrets", no, "mine"),
			allowed: true, reason: `RBAC: allowed by RoleBinding "mine/ns" of Role "one-secret" to User "alice"`,
		},
		{name: "other name", user: "alice", request: to("get", "ns", "", "secrets", no, "yours")},
		{
			name: "service account of the binding's namespace", user: "system:serviceaccount:ns:robot", request: to("get", "ns", "", "secrets", no, "mine"),
			allowed: true, reason: `RBAC: allowed by RoleBinding "mine/ns" of Role "one-secret" to ServiceAccount "robot/ns"`,
		},
		{
			name: "service account of another namespace", user: "system:serviceaccount:other:robot", request: to("get", "ns", "", "secrets", no, "mine"),
			allowed: true, reason: `RBAC: allowed by RoleBinding "mine/ns" of Role "one-secret" to ServiceAccount "robot/other"`,
		},
		{name: "service account of a third", user: "system:serviceaccount:third:robot", request: to("get", "ns", "", "secrets", no, "mine")},
		{name: "service account of no namespace", user: "system:serviceaccount::homeless", request: to("get", "ns", "", "configmaps", no, "x")},
		{
			name: "roles that are not there", user: "lost", request: to("get", "ns", "", "secrets", no, "mine"),
			reason: `RBAC: [clusterrole.rbac.authorization.k8s.io "gone" not found, role.rbac.authorization.k8s.io "gone" not found]`,
		},
		{name: "a path is in no namespace", user: "local", request: authorizer.AttributesRecord{Verb: "get", Path: "/metrics"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			test.request.User = &user.DefaultInfo{Name: test.user, Groups: test.groups}
			decision, reason, err := rights.Authorize(t.Context(), test.request)
			want := authorizer.DecisionNoOpinion
			if test.allowed {
				want = authorizer.DecisionAllow
			}
			if decision != want || reason != test.reason || err != nil {
				t.Errorf("%v, %q, %v; want %v, %q", decision, reason, err, want, test.reason)
			}
			if aware := rights.ConditionsAwareAuthorize(t.Context(), test.request); aware.IsAllow() != test.allowed || aware.IsDeny() {
				t.Errorf("with conditions: %v, want allowed %t", aware, test.allowed)
			}
		})
	}
}

func TestURLs(t *testing.T) {
	t.Parallel()
	tests := []struct {
		pattern, path string
		want          bool
	}{
		{"/apis", "/apis", true}, {"/apis", "/apis/", false}, {"/apis", "/apis/x", false},
		{"/apis/*", "/apis", false}, {"/apis/*", "/apis/", true}, {"/apis/*", "/apis/x/y", true},
		{"/apis*", "/apis", true}, {"/apis*", "/apisx", true}, {"*", "/x", true}, {"/*/x", "/a/x", false},
	}
	for _, test := range tests {
		rights := newAuthorizer(t, clusterRole("r", mayURL("get", test.pattern)), clusterRoleBinding("b", "r", userSubject("u")))
		request := authorizer.AttributesRecord{User: &user.DefaultInfo{Name: "u"}, Verb: "get", Path: test.path}
		decision, _, _ := rights.Authorize(t.Context(), request)
		if got := decision == authorizer.DecisionAllow; got != test.want {
			t.Errorf("%s allows %s: %t, want %t", test.pattern, test.path, got, test.want)
		}
	}
}

func TestRulesFor(t *testing.T) {
	t.Parallel()
	rights := newAuthorizer(t,
		clusterRole("reader", may("get", "", "configmaps"), mayURL("get", "/metrics")),
		role("ns", "one-secret", may("get", "", "secrets", "mine")),
		clusterRoleBinding("readers", "reader", userSubject("alice"), groupSubject("readers")),
		roleBinding("ns", "mine", "Role", "one-secret", userSubject("alice")),
		roleBinding("ns", "away", "Role", "gone", groupSubject("readers")),
	)
	alice := &user.DefaultInfo{Name: "alice", Groups: []string{"readers"}}
	resources, urls, incomplete, err := rights.RulesFor(t.Context(), alice, "ns")
	if incomplete || err == nil || err.Error() != `role.rbac.authorization.k8s.io "gone" not found` {
		t.Errorf("incomplete %t, error %v", incomplete, err)
	}
	wantResources := []authorizer.ResourceRuleInfo{
		&authorizer.DefaultResourceRuleInfo{Verbs: []string{"get"}, APIGroups: []string{""}, Resources: []string{"configmaps"}},
		&authorizer.DefaultResourceRuleInfo{Verbs: []string{"get"}, APIGroups: []string{""}, Resources: []string{"secrets"}, ResourceNames: []string{"mine"}},
	}
	expect.Equal(t, wantResources, resources, "resources")
	wantURLs := []authorizer.NonResourceRuleInfo{&authorizer.DefaultNonResourceRuleInfo{Verbs: []string{"get"}, NonResourceURLs: []string{"/metrics"}}}
	expect.Equal(t, wantURLs, urls, "URLs")
	if resources, _, _, err := rights.RulesFor(t.Context(), alice, "elsewhere"); len(resources) != 1 || err != nil {
		t.Errorf("in another namespace: %v, %v; want what holds everywhere", resources, err)
	}
}

func TestFollowsInformers(t *testing.T) {
	t.Parallel()
	annexKube := fake.NewClientset(clusterRole("reader", may("get", "", "configmaps")), clusterRoleBinding("b", "reader", userSubject("alice")))
	kinds := informers.NewSharedInformerFactory(annexKube, 0)
	rights, err := rbac.New(kinds.Rbac().V1())
	expect.NoError(t, err)
	if rights.HasSynced() {
		t.Error("synced before the informers run")
	}
	request := to("get", "", "", "configmaps", "", "x")
	request.User = &user.DefaultInfo{Name: "alice"}
	if decision, _, _ := rights.Authorize(t.Context(), request); decision != authorizer.DecisionNoOpinion {
		t.Errorf("%v before anything is known", decision)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer kinds.Shutdown()
	defer cancel()
	kinds.StartWithContext(ctx)
	kinds.WaitForCacheSyncWithContext(ctx)
	if !rights.HasSynced() {
		t.Error("not synced after the informers are")
	}
	if decision, _, _ := rights.Authorize(t.Context(), request); decision != authorizer.DecisionAllow {
		t.Errorf("%v after all is known", decision)
	}
}

// BenchmarkAuthorize uses 1,000 bindings of either kind, and a caller in four groups
// that is a subject of few of them, or of all.
func BenchmarkAuthorize(b *testing.B) {
	const count = 1000
	var objects []runtime.Object
	for i := range count {
		name := fmt.Sprintf("n-%d", i)
		other := serviceAccount("ns", name)
		objects = append(objects,
			clusterRole(name, may("get", "example.com", name), may("list", "example.com", name), may("watch", "example.com", name)),
			clusterRoleBinding(name, name, other, groupSubject("all")),
			roleBinding("ns", name, "ClusterRole", name, other, groupSubject("all")))
	}
	objects = append(objects, roleBinding("ns", "alice", "ClusterRole", "n-7", userSubject("alice")))
	rights := newAuthorizer(b, objects...)
	alice := &user.DefaultInfo{Name: "alice", Groups: []string{"a", "b", "c", user.AllAuthenticated}}
	everyone := &user.DefaultInfo{Name: "bob", Groups: []string{"a", "b", "all", user.AllAuthenticated}}
	tests := []struct {
		name     string
		who      *user.DefaultInfo
		resource string
		want     authorizer.Decision
	}{
		{"allowed", alice, "n-7", authorizer.DecisionAllow},
		{"refused", alice, "n-8", authorizer.DecisionNoOpinion},
		{"allowed-by-one-of-all", everyone, "n-7", authorizer.DecisionAllow},
		{"denied-with-all", everyone, "none", authorizer.DecisionNoOpinion},
	}
	for _, test := range tests {
		b.Run(test.name, func(b *testing.B) {
			request := to("get", "ns", "example.com", test.resource, "", "x")
			request.User = test.who
			b.ReportAllocs()
			for b.Loop() {
				if decision, _, _ := rights.Authorize(b.Context(), request); decision != test.want {
					b.Fatalf("%v, want %v", decision, test.want)
				}
			}
		})
	}
}
