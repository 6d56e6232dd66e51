// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	rbacv1apply "k8s.io/client-go/applyconfigurations/rbac/v1"
	restclient "k8s.io/client-go/rest"

	"github.com/annex-dev/annex/pkg/test/clients"
	"github.com/annex-dev/annex/pkg/test/expect"
	"github.com/annex-dev/annex/pkg/test/poll"
)

// impersonatedUser is a user with clients that impersonate it.
type impersonatedUser struct {
	*clients.Clients
	name string
}

// newUser returns a user in the group system:authenticated.
func (a *annex) newUser(t *testing.T, name string) *impersonatedUser {
	t.Helper()
	config := restclient.CopyConfig(a.AnnexConfig)
	config.Impersonate = restclient.ImpersonationConfig{UserName: name, Groups: []string{"system:authenticated"}}
	return &impersonatedUser{Clients: clients.For(t, config), name: name}
}

func clusterRef(name string) rbacv1.RoleRef {
	return rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name}
}

func userSubject(name string) []rbacv1.Subject {
	return []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: name}}
}

func coreRule(verb, resource string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{Verbs: []string{verb}, APIGroups: []string{""}, Resources: []string{resource}}
}

// grant gives a user a cluster role in a namespace, and waits until it is in force.
func (a *annex) grant(t *testing.T, user *impersonatedUser, role, namespace string) {
	t.Helper()
	binding := &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}, RoleRef: clusterRef(role), Subjects: userSubject(user.name)}
	expect.Create(t, a.Kube.RbacV1().RoleBindings(namespace), binding)
	poll.UntilNoError(t, fmt.Sprintf("%s has the role %s in %s", user.name, role, namespace), func() error {
		_, err := user.Kube.CoreV1().ConfigMaps(namespace).List(t.Context(), metav1.ListOptions{})
		return err
	})
}

// newClusterRole creates a ClusterRole with a unique name.
func (a *annex) newClusterRole(t *testing.T, labels map[string]string, rules ...rbacv1.PolicyRule) *rbacv1.ClusterRole {
	t.Helper()
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-", Labels: labels}, Rules: rules}
	return expect.Create(t, a.Kube.RbacV1().ClusterRoles(), role)
}

// The default roles give rights in their namespace only.
func TestRBACDefaultRoles(t *testing.T) {
	t.Parallel()
	a := sharedAnnex(t)
	namespace, elsewhere := a.newNamespace(t), a.newNamespace(t)
	outsider := a.newUser(t, "outsider-"+namespace)
	users := map[string]*impersonatedUser{}
	for _, role := range []string{"view", "edit", "admin"} {
		users[role] = a.newUser(t, role+"-"+namespace)
		a.grant(t, users[role], role, namespace)
	}
	configMap := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}}
	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}, Rules: []rbacv1.PolicyRule{coreRule("get", "configmaps")}}
	acts := map[string]func(user *impersonatedUser, namespace string) error{
		"list config maps": func(user *impersonatedUser, namespace string) error {
			_, err := user.Kube.CoreV1().ConfigMaps(namespace).List(t.Context(), metav1.ListOptions{})
			return err
		},
		"create a config map": func(user *impersonatedUser, namespace string) error {
			_, err := user.Kube.CoreV1().ConfigMaps(namespace).Create(t.Context(), configMap, metav1.CreateOptions{})
			return err
		},
		"list secrets": func(user *impersonatedUser, namespace string) error {
			_, err := user.Kube.CoreV1().Secrets(namespace).List(t.Context(), metav1.ListOptions{})
			return err
		},
		"create a role": func(user *impersonatedUser, namespace string) error {
			_, err := user.Kube.RbacV1().Roles(namespace).Create(t.Context(), role, metav1.CreateOptions{})
			return err
		},
		"delete the namespace": func(user *impersonatedUser, namespace string) error {
			return user.Kube.CoreV1().Namespaces().Delete(t.Context(), namespace, metav1.DeleteOptions{})
		},
	}
	may := map[string][]string{
		"view":  {"list config maps"},
		"edit":  {"list config maps", "create a config map", "list secrets"},
		"admin": {"list config maps", "create a config map", "list secrets", "create a role"},
	}
	for role, user := range users {
		for act, do := range acts {
			err := do(user, namespace)
			switch allowed := slices.Contains(may[role], act); {
			case allowed && err != nil:
				t.Errorf("%s: %s: %v", role, act, err)
			case !allowed && !apierrors.IsForbidden(err):
				t.Errorf("%s: %s: %v, want forbidden", role, act, err)
			}
			if err := do(user, elsewhere); !apierrors.IsForbidden(err) {
				t.Errorf("%s elsewhere: %s: %v, want forbidden", role, act, err)
			}
		}
	}
	for act, do := range acts {
		if err := do(outsider, namespace); !apierrors.IsForbidden(err) {
			t.Errorf("an outsider: %s: %v, want forbidden", act, err)
		}
	}
	// Discovery is open to all authenticated users.
	if _, err := outsider.Kube.Discovery().ServerVersion(); err != nil {
		t.Errorf("an outsider reads the version: %v", err)
	}
}

// Users cannot grant rights that they do not have.
func TestRBACEscalation(t *testing.T) {
	t.Parallel()
	a := sharedAnnex(t)
	namespace := a.newNamespace(t)
	alice := a.newUser(t, "alice-"+namespace)
	a.grant(t, alice, "admin", namespace)
	roles, bindings := alice.Kube.RbacV1().Roles(namespace), alice.Kube.RbacV1().RoleBindings(namespace)
	const held = "not currently held:\n"

	own := expect.Create(t, roles, &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: "own"}, Rules: []rbacv1.PolicyRule{coreRule("get", "secrets")}})
	more := coreRule("update", "resourcequotas")
	const quotas = `{APIGroups:[""], Resources:["resourcequotas"], Verbs:["update"]}`
	_, err := roles.Create(t.Context(), &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: "more"}, Rules: []rbacv1.PolicyRule{more}}, metav1.CreateOptions{})
	expect.Error(t, err, `roles.rbac.authorization.k8s.io "more" is forbidden: user "`+alice.name+`" (groups=["system:authenticated"]) is attempting to grant RBAC permissions `+held+quotas)
	update := own.DeepCopy()
	update.Rules = append(update.Rules, more)
	_, err = roles.Update(t.Context(), update, metav1.UpdateOptions{})
	expect.Error(t, err, "forbidden", held+quotas)
	_, err = roles.Patch(t.Context(), "own", types.JSONPatchType, []byte(`[{"op":"add","path":"/rules/0/verbs/0","value":"*"}]`), metav1.PatchOptions{})
	expect.Error(t, err, "forbidden", held)
	_, err = roles.Patch(t.Context(), "own", types.MergePatchType, []byte(`{"rules":[{"verbs":["*"],"apiGroups":["*"],"resources":["*"]}]}`), metav1.PatchOptions{})
	expect.Error(t, err, "forbidden", held)
	for _, name := range []string{"own", "new"} {
		_, err := roles.Apply(t.Context(), rbacv1apply.Role(name, namespace).WithRules(
			rbacv1apply.PolicyRule().WithVerbs("update").WithAPIGroups("").WithResources("resourcequotas")), metav1.ApplyOptions{FieldManager: "test", Force: true})
		expect.Error(t, err, "forbidden", held+quotas)
	}
	if stored, err := roles.Get(t.Context(), "own", metav1.GetOptions{}); err != nil || len(stored.Rules) != 1 || len(stored.Rules[0].Verbs) != 1 {
		t.Errorf("after all that was refused there is %v, %v", stored, err)
	}
	// Labels may change: the role has only rights of alice.
	if _, err := roles.Patch(t.Context(), "own", types.MergePatchType, []byte(`{"metadata":{"labels":{"a":"b"}}}`), metav1.PatchOptions{}); err != nil {
		t.Errorf("labelling a role: %v", err)
	}

	bind := func(name, role string) error {
		_, err := bindings.Create(t.Context(), &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: name}, RoleRef: clusterRef(role), Subjects: userSubject(alice.name)}, metav1.CreateOptions{})
		return err
	}
	expect.Error(t, bind("root", "cluster-admin"), `rolebindings.rbac.authorization.k8s.io "root" is forbidden`, held, `{APIGroups:["*"], Resources:["*"], Verbs:["*"]}`)
	// Another test's role reaches edit by aggregation a moment before it reaches admin.
	poll.UntilNoError(t, "bind a role with rights of alice", func() error { return bind("friends", "edit") })
	_, err = bindings.Apply(t.Context(), rbacv1apply.RoleBinding("applied", namespace).WithRoleRef(
		rbacv1apply.RoleRef().WithAPIGroup(rbacv1.GroupName).WithKind("ClusterRole").WithName("cluster-admin")), metav1.ApplyOptions{FieldManager: "test"})
	expect.Error(t, err, "forbidden", held)
	expect.Error(t, bind("lost", "nowhere"), `clusterroles.rbac.authorization.k8s.io "nowhere" not found`)
	_, err = bindings.Patch(t.Context(), "friends", types.MergePatchType, []byte(`{"roleRef":{"name":"cluster-admin"}}`), metav1.PatchOptions{})
	expect.Error(t, err, held)
	_, err = alice.Kube.RbacV1().ClusterRoles().Create(t.Context(), &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "alices"}}, metav1.CreateOptions{})
	expect.Error(t, err, "cannot create resource \"clusterroles\"")
}

// The verbs bind and escalate allow it, for their resources only.
func TestRBACVerbs(t *testing.T) {
	t.Parallel()
	a := sharedAnnex(t)
	namespace := a.newNamespace(t)
	bob := a.newUser(t, "bob-"+namespace)
	a.grant(t, bob, "admin", namespace)
	special := a.newClusterRole(t, nil,
		rbacv1.PolicyRule{Verbs: []string{"bind"}, APIGroups: []string{rbacv1.GroupName}, Resources: []string{"clusterroles"}, ResourceNames: []string{"annex:hosting-view"}},
		rbacv1.PolicyRule{Verbs: []string{"escalate"}, APIGroups: []string{rbacv1.GroupName}, Resources: []string{"roles"}})
	a.grant(t, bob, special.Name, namespace)

	bind := func(role string) error {
		_, err := bob.Kube.RbacV1().RoleBindings(namespace).Create(t.Context(),
			&rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}, RoleRef: clusterRef(role), Subjects: userSubject("carol")}, metav1.CreateOptions{})
		return err
	}
	poll.UntilNoError(t, "binding by the verb", func() error { return bind("annex:hosting-view") })
	expect.Error(t, bind("annex:hosting-edit"), "not currently held")
	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: "all"}, Rules: []rbacv1.PolicyRule{{Verbs: []string{"*"}, APIGroups: []string{"*"}, Resources: []string{"*"}}}}
	poll.UntilNoError(t, "escalating by the verb", func() error {
		_, err := bob.Kube.RbacV1().Roles(namespace).Create(t.Context(), role, metav1.CreateOptions{})
		return err
	})
}

// ClusterRoles with a label are aggregated to the default roles.
func TestRBACAggregation(t *testing.T) {
	t.Parallel()
	a := sharedAnnex(t)
	widgets := a.installCRD(t, newCRD(t, anySchema))
	viewer := a.newUser(t, "viewer-"+widgets.namespace)
	a.grant(t, viewer, "view", widgets.namespace)
	list := func() error {
		_, err := viewer.Dynamic.Resource(widgets.gvr("v1")).Namespace(widgets.namespace).List(t.Context(), metav1.ListOptions{})
		return err
	}
	if err := list(); !apierrors.IsForbidden(err) {
		t.Errorf("before the ClusterRole is created: %v, want forbidden", err)
	}
	resource := widgets.gvr("v1").GroupResource()
	role := a.newClusterRole(t, map[string]string{"rbac.authorization.k8s.io/aggregate-to-view": "true"},
		rbacv1.PolicyRule{Verbs: []string{"get", "list", "watch"}, APIGroups: []string{resource.Group}, Resources: []string{resource.Resource}})
	poll.UntilNoError(t, "widgets may be viewed", func() error { return list() })

	// Creating a role that aggregates all roles needs all rights.
	aggregating := &rbacv1.ClusterRole{
		ObjectMeta:      metav1.ObjectMeta{GenerateName: "test-"},
		AggregationRule: &rbacv1.AggregationRule{ClusterRoleSelectors: []metav1.LabelSelector{{}}},
	}
	maker := a.newUser(t, "maker-"+widgets.namespace)
	makesRoles := a.newClusterRole(t, nil, rbacv1.PolicyRule{Verbs: []string{"create", "update"}, APIGroups: []string{rbacv1.GroupName}, Resources: []string{"clusterroles"}})
	binding := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}, RoleRef: clusterRef(makesRoles.Name), Subjects: userSubject(maker.name)}
	expect.Create(t, a.Kube.RbacV1().ClusterRoleBindings(), binding)
	poll.UntilDone(t, "a role that aggregates all is refused", func() (bool, string) {
		_, err := maker.Kube.RbacV1().ClusterRoles().Create(t.Context(), aggregating, metav1.CreateOptions{})
		const want = "must have cluster-admin privileges to use the aggregationRule"
		return err != nil && apierrors.IsForbidden(err) && strings.Contains(err.Error(), want), fmt.Sprintf("%v, want %s", err, want)
	})

	expect.Delete(t, a.Kube.RbacV1().ClusterRoles(), role.Name)
	poll.UntilDone(t, "widgets may not be viewed any more", func() (bool, string) {
		err := list()
		return apierrors.IsForbidden(err), fmt.Sprintf("%v, want forbidden", err)
	})
}

// Rights on a group do not reach a group below it, in whose CRDs' names the resource and the group
// are joined.
func TestRBACGroupBelow(t *testing.T) {
	t.Parallel()
	a := sharedAnnex(t)
	widgets := a.installCRD(t, newCRD(t, anySchema))
	widgets.create(t, "v1", "secret", "spec: {}")
	below, above, _ := strings.Cut(widgets.group, ".")
	owner := a.newUser(t, "owner-"+widgets.namespace)
	role := a.newClusterRole(t, nil, coreRule("list", "configmaps"),
		rbacv1.PolicyRule{Verbs: []string{"*"}, APIGroups: []string{above}, Resources: []string{"*"}})
	a.grant(t, owner, role.Name, widgets.namespace)

	joined := fmt.Sprintf("/apis/%s/v1/namespaces/%s/widgets.%s", above, widgets.namespace, below)
	object := fmt.Sprintf(`{"apiVersion":"%s/v1","kind":"Widget","metadata":{"name":"new"}}`, widgets.group)
	for _, request := range []struct{ method, path, body string }{
		{http.MethodGet, "", ""},
		{http.MethodGet, "?watch=true&timeoutSeconds=1", ""},
		{http.MethodGet, "/secret", ""},
		{http.MethodGet, "/secret/status", ""},
		{http.MethodPost, "", object},
		{http.MethodPut, "/secret", object},
		{http.MethodPatch, "/secret", "{}"},
		{http.MethodPatch, "/secret/status", "{}"},
		{http.MethodDelete, "/secret", ""},
		{http.MethodDelete, "", ""},
	} {
		contentType := "application/json"
		if request.method == http.MethodPatch {
			contentType = "application/merge-patch+json"
		}
		for path, want := range map[string]int{widgets.path("v1"): http.StatusForbidden, joined: http.StatusNotFound} {
			got := send(t, a.HTTP, request.method, a.URL+path+request.path, request.body,
				"Content-Type", contentType, "Impersonate-User", owner.name)
			if got.Code != want {
				t.Errorf("%s %s: got %.300v, want %d", request.method, path+request.path, got, want)
			}
		}
	}
	widgets.wantNames(t, "after the requests", "secret")
}
