// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package escalation_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/annex-dev/annex/pkg/registry/rbac/escalation"
	"github.com/annex-dev/annex/pkg/standalone/authorization/rbac"
	"github.com/annex-dev/annex/pkg/test/expect"
)

// fixture has all roles and bindings.
type fixture struct {
	roles               []*rbacv1.Role
	clusterRoles        []*rbacv1.ClusterRole
	roleBindings        []*rbacv1.RoleBinding
	clusterRoleBindings []*rbacv1.ClusterRoleBinding
}

var _ rbac.Source = &fixture{}

func (w *fixture) Role(_ context.Context, namespace, name string) (*rbacv1.Role, error) {
	for _, role := range w.roles {
		if role.Namespace == namespace && role.Name == name {
			return role, nil
		}
	}
	return nil, apierrors.NewNotFound(rbacv1.Resource("roles"), name)
}

func (w *fixture) ClusterRole(_ context.Context, name string) (*rbacv1.ClusterRole, error) {
	for _, role := range w.clusterRoles {
		if role.Name == name {
			return role, nil
		}
	}
	return nil, apierrors.NewNotFound(rbacv1.Resource("clusterroles"), name)
}

func (w *fixture) RoleBindings(_ context.Context, namespace string, _ user.Info) ([]*rbacv1.RoleBinding, error) {
	return slices.DeleteFunc(slices.Clone(w.roleBindings), func(b *rbacv1.RoleBinding) bool { return b.Namespace != namespace }), nil
}

func (w *fixture) ClusterRoleBindings(context.Context, user.Info) ([]*rbacv1.ClusterRoleBinding, error) {
	return w.clusterRoleBindings, nil
}

// authorizer returns annex's authorizer, with informers of the fixture.
func (w *fixture) authorizer(t *testing.T) authorizer.Authorizer {
	t.Helper()
	kinds := informers.NewSharedInformerFactory(fake.NewClientset(), 0).Rbac().V1()
	rights, err := rbac.New(kinds)
	expect.NoError(t, err)
	var errs []error
	for _, role := range w.roles {
		errs = append(errs, kinds.Roles().Informer().GetIndexer().Add(role))
	}
	for _, role := range w.clusterRoles {
		errs = append(errs, kinds.ClusterRoles().Informer().GetIndexer().Add(role))
	}
	for _, binding := range w.roleBindings {
		errs = append(errs, kinds.RoleBindings().Informer().GetIndexer().Add(binding))
	}
	for _, binding := range w.clusterRoleBindings {
		errs = append(errs, kinds.ClusterRoleBindings().Informer().GetIndexer().Add(binding))
	}
	for _, err := range errs {
		expect.NoError(t, err)
	}
	return rights
}

// with is the fixture after a write: the object is new, or in place of the one with
// its name. What gathers from it does so.
func (w *fixture) with(object runtime.Object) *fixture {
	after := &fixture{
		roles: slices.Clone(w.roles), clusterRoles: slices.Clone(w.clusterRoles),
		roleBindings: slices.Clone(w.roleBindings), clusterRoleBindings: slices.Clone(w.clusterRoleBindings),
	}
	switch o := object.(type) {
	case *rbacv1.Role:
		after.roles = put(after.roles, o)
	case *rbacv1.ClusterRole:
		after.clusterRoles = put(after.clusterRoles, o)
	case *rbacv1.RoleBinding:
		after.roleBindings = put(after.roleBindings, o)
	case *rbacv1.ClusterRoleBinding:
		after.clusterRoleBindings = put(after.clusterRoleBindings, o)
	}
	after.gather()
	return after
}

func put[O metav1.Object](objects []O, object O) []O {
	objects = slices.DeleteFunc(objects, func(o O) bool { return o.GetNamespace() == object.GetNamespace() && o.GetName() == object.GetName() })
	return append(objects, object)
}

// gather evaluates aggregation rules.
func (w *fixture) gather() {
	for i, role := range w.clusterRoles {
		if role.AggregationRule == nil {
			continue
		}
		gathering := role.DeepCopy()
		gathering.Rules = nil
		for _, other := range w.clusterRoles {
			if other.AggregationRule == nil && maps.Equal(other.Labels, role.AggregationRule.ClusterRoleSelectors[0].MatchLabels) {
				gathering.Rules = append(gathering.Rules, other.Rules...)
			}
		}
		w.clusterRoles[i] = gathering
	}
}

// dice create a fixture from bytes; without more bytes they roll zero.
type dice struct{ bytes []byte }

func (d *dice) roll(sides int) int {
	if len(d.bytes) == 0 {
		return 0
	}
	rolled := int(d.bytes[0]) % sides
	d.bytes = d.bytes[1:]
	return rolled
}

func (d *dice) one(of ...string) string { return of[d.roll(len(of))] }

func (d *dice) rules(urls bool) []rbacv1.PolicyRule {
	rules := make([]rbacv1.PolicyRule, d.roll(3))
	for i := range rules {
		verbs := []string{d.one("get", "get", "*", "escalate", "bind")}
		if d.roll(3) == 0 {
			verbs = append(verbs, d.one("get", "bind"))
		}
		if urls && d.roll(4) == 0 {
			rules[i] = rbacv1.PolicyRule{Verbs: verbs, NonResourceURLs: []string{d.one("/u", "/u/v", "/u/*", "*")}}
			continue
		}
		rules[i] = rbacv1.PolicyRule{
			Verbs: verbs, APIGroups: []string{d.one("g", rbacv1.GroupName, "*", "g")},
			Resources: []string{d.one("a", "roles", "clusterroles", "a/s", "*/s", "*", "*")},
		}
		if d.roll(3) == 0 {
			rules[i].Resources = append(rules[i].Resources, d.one("a", "a/s", "roles"))
		}
		if d.roll(4) == 0 {
			rules[i].ResourceNames = []string{d.one("c0", "r0")}
		}
	}
	return rules
}

func (d *dice) subjects() []rbacv1.Subject {
	subjects := make([]rbacv1.Subject, d.roll(3))
	for i := range subjects {
		switch d.roll(3) {
		case 0:
			subjects[i] = rbacv1.Subject{Kind: "User", APIGroup: rbacv1.GroupName, Name: d.one("actor", "victim")}
		case 1:
			subjects[i] = rbacv1.Subject{Kind: "Group", APIGroup: rbacv1.GroupName, Name: d.one("all", "few")}
		case 2:
			subjects[i] = rbacv1.Subject{Kind: "ServiceAccount", Name: "robot", Namespace: d.one("n0", "n1")}
		}
	}
	return subjects
}

func (d *dice) role(namespace, name string) *rbacv1.Role {
	return &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Rules: d.rules(false)}
}

func (d *dice) clusterRole(name string) *rbacv1.ClusterRole {
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}}
	switch d.roll(4) {
	case 0:
		role.AggregationRule = &rbacv1.AggregationRule{ClusterRoleSelectors: []metav1.LabelSelector{{MatchLabels: map[string]string{"gathered": "yes"}}}}
		return role
	case 1:
		role.Labels = map[string]string{"gathered": "yes"}
	}
	role.Rules = d.rules(true)
	return role
}

func (d *dice) ref() rbacv1.RoleRef {
	if d.roll(2) == 0 {
		return rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: d.one("r0", "r1", "r2")}
	}
	return d.clusterRef()
}

func (d *dice) clusterRef() rbacv1.RoleRef {
	return rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: d.one("c0", "c1", "c2", "c3")}
}

func (d *dice) roleBinding(namespace, name string) *rbacv1.RoleBinding {
	return &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, RoleRef: d.ref(), Subjects: d.subjects()}
}

func (d *dice) clusterRoleBinding(name string) *rbacv1.ClusterRoleBinding {
	return &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: name}, RoleRef: d.clusterRef(), Subjects: d.subjects()}
}

// fixture makes some of each, and leaves some that others refer to unmade.
func (d *dice) fixture() *fixture {
	w := &fixture{}
	for _, namespace := range []string{"n0", "n1"} {
		for i := range 2 {
			w.roles = append(w.roles, d.role(namespace, fmt.Sprintf("r%d", i)))
			w.roleBindings = append(w.roleBindings, d.roleBinding(namespace, fmt.Sprintf("b%d", i)))
		}
	}
	for i := range 3 {
		w.clusterRoles = append(w.clusterRoles, d.clusterRole(fmt.Sprintf("c%d", i)))
		w.clusterRoleBindings = append(w.clusterRoleBindings, d.clusterRoleBinding(fmt.Sprintf("b%d", i)))
	}
	w.gather()
	return w
}

// attempt is a write, and the request that permits it regardless of other rights: a verb on
// a role.
type attempt struct {
	object   runtime.Object
	check    escalation.Check
	old      runtime.Object
	instead  request
	granted  []rbacv1.PolicyRule
	dangling bool
}

// attempt returns a random write.
func (d *dice) attempt(w *fixture, guard escalation.Guard, namespace string) attempt {
	switch d.roll(4) {
	case 0:
		role := d.role(namespace, d.one("r0", "r1", "r2"))
		return attempt{
			object: role, check: guard.Role, granted: role.Rules,
			instead: request{verb: "escalate", namespace: namespace, group: rbacv1.GroupName, resource: "roles"},
		}
	case 1:
		role := d.clusterRole(d.one("c0", "c1", "c2", "c3"))
		a := attempt{
			object: role, check: guard.ClusterRole, granted: role.Rules,
			instead: request{verb: "escalate", group: rbacv1.GroupName, resource: "clusterroles"},
		}
		old, err := w.ClusterRole(context.Background(), role.Name)
		if err == nil {
			a.old = old
		}
		if role.AggregationRule != nil || err == nil && old.AggregationRule != nil {
			a.granted = append(slices.Clone(a.granted), rbacv1.PolicyRule{Verbs: []string{"*"}, APIGroups: []string{"*"}, Resources: []string{"*"}},
				rbacv1.PolicyRule{Verbs: []string{"*"}, NonResourceURLs: []string{"*"}})
		}
		return a
	case 2:
		binding := d.roleBinding(namespace, d.one("b0", "b3"))
		return attempt{
			object: binding, check: guard.RoleBinding, granted: w.naiveRole(binding.RoleRef, namespace), dangling: w.dangling(binding.RoleRef, namespace),
			instead: bind(binding.RoleRef, namespace),
		}
	default:
		binding := d.clusterRoleBinding(d.one("b0", "b3"))
		return attempt{
			object: binding, check: guard.ClusterRoleBinding, granted: w.naiveRole(binding.RoleRef, ""), dangling: w.dangling(binding.RoleRef, ""),
			instead: bind(binding.RoleRef, ""),
		}
	}
}

func bind(ref rbacv1.RoleRef, namespace string) request {
	resource := map[string]string{"Role": "roles", "ClusterRole": "clusterroles"}[ref.Kind]
	return request{verb: "bind", namespace: namespace, group: rbacv1.GroupName, resource: resource, named: ref.Name}
}

func (w *fixture) dangling(ref rbacv1.RoleRef, namespace string) bool {
	_, err := rbac.Resolver{Source: w}.RoleRules(context.Background(), ref, namespace)
	return err != nil
}

// FuzzNoPrivilegeEscalation writes a role or a binding to a random fixture. An allowed write
// grants no user a right that the writer does not have; a refused one would.
func FuzzNoPrivilegeEscalation(f *testing.F) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 500 {
		seed := make([]byte, 160)
		for i := range seed {
			seed[i] = byte(random.UintN(256))
		}
		f.Add(seed)
	}
	actor := &user.DefaultInfo{Name: "actor", Groups: []string{"all", "few"}}
	users := []user.Info{
		actor, &user.DefaultInfo{Name: "victim", Groups: []string{"all"}}, &user.DefaultInfo{Name: "system:serviceaccount:n0:robot", Groups: []string{"all"}},
	}
	f.Fuzz(func(t *testing.T, bytes []byte) {
		d := &dice{bytes}
		before := d.fixture()
		rights := before.authorizer(t)
		namespace := d.one("n0", "n1")
		a := d.attempt(before, escalation.Guard{Authorizer: rights, Resolver: rbac.Resolver{Source: before}}, namespace)

		of := a.instead.namespace
		ctx := genericapirequest.WithNamespace(genericapirequest.WithUser(t.Context(), actor), of)
		err := a.check(ctx, a.object, a.old)
		entitled := before.naive(actor, a.instead)
		lacks := before.lacks(actor, a.granted, of)
		switch {
		case err == nil && !entitled && lacks != nil:
			t.Fatalf("%T was allowed, though the writer lacks %+v", a.object, *lacks)
		case err != nil && lacks == nil && !a.dangling && (of == "" || !hasPaths(a.granted)):
			t.Fatalf("%T was refused, though the writer has it all: %v", a.object, err)
		case err != nil && entitled:
			t.Fatalf("%T was refused to one subject may %s: %v", a.object, a.instead.verb, err)
		}
		if err != nil || entitled {
			return
		}
		after := before.with(a.object)
		for _, subject := range users {
			for _, r := range everything {
				if after.naive(subject, r) && !before.naive(subject, r) && !before.naive(actor, r) {
					t.Fatalf("by %T %s gains %+v, which the writer did not have", a.object, subject.GetName(), r)
				}
			}
		}
	})
}

// hasPaths reports whether there are rules with paths. Granting them requires them, even in
// a namespace, where they allow nothing.
func hasPaths(rules []rbacv1.PolicyRule) bool {
	return slices.ContainsFunc(rules, func(rule rbacv1.PolicyRule) bool { return len(rule.NonResourceURLs) > 0 })
}

// lacks returns a request that rules allow in a namespace, or everywhere, and that subject
// is not authorized for.
func (w *fixture) lacks(subject user.Info, rules []rbacv1.PolicyRule, namespace string) *request {
	for _, r := range everything {
		// In a namespace, rules with paths allow nothing.
		if r.namespace != namespace || !naiveRules(rules, r) {
			continue
		}
		if !w.naive(subject, r) {
			return &r
		}
	}
	return nil
}

// FuzzAuthorizer compares the authorizer with a naive evaluation of the bindings.
func FuzzAuthorizer(f *testing.F) {
	random := rand.New(rand.NewPCG(3, 4))
	for range 50 {
		seed := make([]byte, 140)
		for i := range seed {
			seed[i] = byte(random.UintN(256))
		}
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, bytes []byte) {
		w := (&dice{bytes}).fixture()
		rights := w.authorizer(t)
		for _, subject := range []user.Info{
			&user.DefaultInfo{Name: "victim", Groups: []string{"all"}}, &user.DefaultInfo{Name: "system:serviceaccount:n0:robot", Groups: []string{"few"}},
		} {
			for _, r := range everything {
				decision, reason, err := rights.Authorize(t.Context(), authorizer.AttributesRecord{
					User: subject, Verb: r.verb, Path: r.path, ResourceRequest: r.path == "",
					Namespace: r.namespace, APIGroup: r.group, Resource: r.resource, Subresource: r.part, Name: r.named,
				})
				if allowed := decision == authorizer.DecisionAllow; allowed != w.naive(subject, r) || err != nil {
					t.Fatalf("%s and %+v: %v (%s), %v; want allowed %t", subject.GetName(), r, decision, reason, err, !allowed)
				}
			}
		}
	})
}
