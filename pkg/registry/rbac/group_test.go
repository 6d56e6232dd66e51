// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package rbac

import (
	"context"
	"maps"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/annex-dev/annex/pkg/registry/typed/typedtest"
	"github.com/annex-dev/annex/pkg/table"
	"github.com/annex-dev/annex/pkg/test/expect"
)

// served returns the storage of the group in an etcd of the test.
func served(t *testing.T) (map[string]rest.StandardStorage, *typedtest.Storage) {
	t.Helper()
	etcd := typedtest.NewStorage(t, rbacv1.SchemeGroupVersion)
	storage := map[string]rest.StandardStorage{}
	for name, endpoint := range etcd.Endpoints(NewGroup(etcd, authorizerfactory.NewAlwaysDenyAuthorizer())) {
		storage[name] = endpoint.(rest.StandardStorage)
	}
	return storage, etcd
}

func create(ctx context.Context, storage rest.StandardStorage, object table.Object) error {
	_, err := typedtest.Create(ctx, storage, object)
	return err
}

// put creates or updates, as PUT and server-side apply do.
func put(ctx context.Context, storage rest.StandardStorage, object table.Object) error {
	_, err := typedtest.Update(ctx, storage, object)
	return err
}

func TestStorage(t *testing.T) {
	t.Parallel()
	storage, etcd := served(t)
	expect.Equal(t, []string{"clusterrolebindings", "clusterroles", "rolebindings", "roles"}, slices.Sorted(maps.Keys(storage)), "served")
	root := typedtest.RequestAs(t, "", "root", "system:masters")
	here := typedtest.RequestAs(t, "ns", "root", "system:masters")
	rule := []rbacv1.PolicyRule{{Verbs: []string{"get"}, APIGroups: []string{""}, Resources: []string{"configmaps"}}}
	ref := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "a"}
	subjects := []rbacv1.Subject{
		{APIGroup: rbacv1.GroupName, Kind: "User", Name: "alice"}, {APIGroup: rbacv1.GroupName, Kind: "User", Name: "bob"},
		{APIGroup: rbacv1.GroupName, Kind: "Group", Name: "devs"}, {Kind: "ServiceAccount", Namespace: "ns", Name: "robot"},
	}
	objects := map[string]table.Object{
		"clusterroles":        &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Rules: rule},
		"clusterrolebindings": &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "a"}, RoleRef: ref, Subjects: subjects},
		"roles":               &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "ns"}, Rules: rule},
		"rolebindings":        &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "ns"}, RoleRef: ref, Subjects: subjects},
	}
	for resource, object := range objects {
		ctx, path := root, []string{resource, "a"}
		if storage[resource].(rest.Scoper).NamespaceScoped() {
			ctx, path = here, []string{resource, "ns", "a"}
		}
		expect.NoError(t, create(ctx, storage[resource], object.DeepCopyObject().(table.Object)), "create in %s", resource)
		if etcd.Stored(t, path...) == nil {
			t.Errorf("nothing is stored at %v", path)
		}
		want := []any{"a", "0001-01-01T00:00:00Z"}
		if strings.HasSuffix(resource, "bindings") {
			want = []any{"a", "ClusterRole/a", "<unknown>", "alice, bob", "devs", "ns/robot"}
		}
		expect.Equal(t, [][]any{want}, typedtest.Cells(t, storage[resource], object), "cells of %s", resource)
	}
}

// TestEveryWriteIsChecked tries all ways to gain rights.
func TestEveryWriteIsChecked(t *testing.T) {
	t.Parallel()
	storage, _ := served(t)
	root := typedtest.RequestAs(t, "", "root", "system:masters")
	rules := func(resources ...string) []rbacv1.PolicyRule {
		return []rbacv1.PolicyRule{{Verbs: []string{"get"}, APIGroups: []string{""}, Resources: resources}}
	}
	ref := func(name string) rbacv1.RoleRef {
		return rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name}
	}
	for name, resource := range map[string]string{"little": "configmaps", "much": "secrets"} {
		expect.NoError(t, create(root, storage["clusterroles"], &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: rules(resource)}))
		binding := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: name}, RoleRef: ref(name)}
		if name == "little" {
			binding.Subjects = []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: "alice"}}
		}
		expect.NoError(t, create(root, storage["clusterrolebindings"], binding))
	}
	alice, here := typedtest.RequestAs(t, "", "alice"), typedtest.RequestAs(t, "ns", "alice")
	meta := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Name: name} }
	local := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Name: name, Namespace: "ns"} }
	type attempt struct {
		ctx      context.Context
		resource string
		object   func(name, role string, rules []rbacv1.PolicyRule) table.Object
	}
	attempts := []attempt{
		{alice, "clusterroles", func(name, _ string, rules []rbacv1.PolicyRule) table.Object {
			return &rbacv1.ClusterRole{ObjectMeta: meta(name), Rules: rules}
		}},
		{here, "roles", func(name, _ string, rules []rbacv1.PolicyRule) table.Object {
			return &rbacv1.Role{ObjectMeta: local(name), Rules: rules}
		}},
		{alice, "clusterrolebindings", func(name, role string, _ []rbacv1.PolicyRule) table.Object {
			return &rbacv1.ClusterRoleBinding{ObjectMeta: meta(name), RoleRef: ref(role)}
		}},
		{here, "rolebindings", func(name, role string, _ []rbacv1.PolicyRule) table.Object {
			return &rbacv1.RoleBinding{ObjectMeta: local(name), RoleRef: ref(role)}
		}},
	}
	for _, a := range attempts {
		endpoint := storage[a.resource]
		for how, write := range map[string]func(context.Context, rest.StandardStorage, table.Object) error{"create": create, "put": put} {
			if err := write(a.ctx, endpoint, a.object("more-"+how, "much", rules("secrets"))); !apierrors.IsForbidden(err) {
				t.Errorf("%s in %s with more: %v, want forbidden", how, a.resource, err)
			}
			expect.Succeeds(t, write(a.ctx, endpoint, a.object("own-"+how, "little", rules("configmaps"))), "%s in %s with own rights", how, a.resource)
		}
		if err := put(a.ctx, endpoint, a.object("own-create", "much", rules("configmaps", "secrets"))); !apierrors.IsForbidden(err) {
			t.Errorf("update in %s to more: %v, want forbidden", a.resource, err)
		}
	}
	// Adding subjects requires the rights too.
	much := &rbacv1.ClusterRoleBinding{ObjectMeta: meta("much"), RoleRef: ref("much"), Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: "alice"}}}
	if err := put(alice, storage["clusterrolebindings"], much); !apierrors.IsForbidden(err) {
		t.Errorf("add oneself to a binding: %v, want forbidden", err)
	}
	// The garbage collector may change owners and finalizers.
	owned, err := storage["clusterroles"].Get(root, "much", &metav1.GetOptions{})
	expect.NoError(t, err)
	collected := owned.DeepCopyObject().(*rbacv1.ClusterRole)
	collected.Finalizers = []string{"example.com/wait"}
	expect.Succeeds(t, put(alice, storage["clusterroles"], collected), "change only finalizers")
	relabelled := owned.DeepCopyObject().(*rbacv1.ClusterRole)
	relabelled.ResourceVersion = ""
	relabelled.Labels = map[string]string{"rbac.authorization.k8s.io/aggregate-to-view": "true"}
	if err := put(alice, storage["clusterroles"], relabelled); !apierrors.IsForbidden(err) {
		t.Errorf("add a role to an aggregation: %v, want forbidden", err)
	}

	// Revoked rights are unavailable in the next request.
	if _, _, err := storage["clusterrolebindings"].Delete(root, "little", rest.ValidateAllObjectFunc, &metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := create(here, storage["roles"], &rbacv1.Role{ObjectMeta: local("late"), Rules: rules("configmaps")}); !apierrors.IsForbidden(err) {
		t.Errorf("with revoked rights: %v, want forbidden", err)
	}
}
