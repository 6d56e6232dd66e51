// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package move

import (
	"context"
	"fmt"
	"maps"
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/retry"
	"k8s.io/component-helpers/auth/rbac/reconciliation"

	"github.com/annex-dev/annex/pkg/aggregated/mainadmission"
	"github.com/annex-dev/annex/pkg/aggregated/maincopy"
	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/cmd/internal/footprint"
	"github.com/annex-dev/annex/pkg/cmd/internal/output"
)

const (
	// groupsBinding binds the role to which the rights for groups are aggregated.
	groupsBinding = "annex-hosted-groups"

	notChecked     = "Not checked whether annex has these rights yet."
	annexNamespace = hostingv1alpha1.NamespaceAnnexSystem
)

func (s *session) printRights(ctx context.Context, name string, wanted rules) error {
	objects := []any{role(s.group, wanted)}
	if role, binding := s.systemRole(ctx, name); role != nil {
		objects = append(objects, role, binding)
	}
	return output.PrintYAML(s.out, objects...)
}

// bound returns the users that the role with the rights for groups is bound to.
func (s *session) bound(ctx context.Context) []rbacv1.Subject {
	binding, err := s.Kube.RbacV1().ClusterRoleBindings().Get(ctx, groupsBinding, metav1.GetOptions{})
	if err != nil {
		return nil
	}
	return binding.Subjects
}

// subjects returns the users that annex is in the main cluster: by default the service account of the manifests.
func (s *session) subjects(ctx context.Context) []rbacv1.Subject {
	if subjects := s.bound(ctx); len(subjects) > 0 {
		return subjects
	}
	return []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: annexNamespace, Name: "annex"}}
}

// apply creates or updates the roles of a command, and returns what was done with the ClusterRole, in kubectl's words. Roles
// are read first: users who may not write them may use what an administrator has applied.
func (s *session) apply(ctx context.Context, name string, wanted *rbacv1.ClusterRole) (done string, err error) {
	rbac := s.Kube.RbacV1()
	err = retry.RetryOnConflict(retry.DefaultRetry, func() error {
		result, err := (&reconciliation.ReconcileRoleOptions{
			Role: reconciliation.ClusterRoleRuleOwner{ClusterRole: wanted}, Client: reconciliation.ClusterRoleModifier{Client: rbac.ClusterRoles()},
			Confirm: true, RemoveExtraPermissions: true,
		}).Run()
		if err == nil {
			done = map[reconciliation.ReconcileOperation]string{
				reconciliation.ReconcileCreate: "created", reconciliation.ReconcileUpdate: "configured", reconciliation.ReconcileNone: "unchanged",
			}[result.Operation]
		}
		return err
	})
	if err != nil {
		return done, err
	}
	role, binding := s.systemRole(ctx, name)
	if role == nil {
		return done, s.revokeInSystem(ctx)
	}
	return done, retry.RetryOnConflict(retry.DefaultRetry, func() error {
		_, err := (&reconciliation.ReconcileRoleOptions{
			Role: reconciliation.RoleRuleOwner{Role: role}, Client: reconciliation.RoleModifier{Client: rbac, NamespaceClient: s.Kube.CoreV1().Namespaces()},
			Confirm: true, RemoveExtraPermissions: true,
		}).Run()
		if err != nil {
			return err
		}
		_, err = (&reconciliation.ReconcileRoleBindingOptions{
			RoleBinding: reconciliation.RoleBindingAdapter{RoleBinding: binding},
			Client:      reconciliation.RoleBindingClientAdapter{Client: rbac, NamespaceClient: s.Kube.CoreV1().Namespaces()},
			Confirm:     true, RemoveExtraSubjects: true,
		}).Run()
		return err
	})
}

// grant creates or updates the ClusterRole with the rights for the group, and waits until annex has
// them.
func (s *session) grant(ctx context.Context, name string, granted rules) error {
	wanted := role(s.group, granted)
	done, err := s.apply(ctx, name, wanted)
	if apierrors.IsForbidden(err) {
		err = fmt.Errorf("%w; an administrator can apply what this prints: %s", err, s.command(name, "--print-rights"))
	}
	if err != nil {
		return fmt.Errorf("grant annex the rights for %s: %w", s.group, err)
	}
	s.print("%s/%s %s", kindOf(clusterRolesResource), wanted.Name, done)
	return s.waitForRights(ctx, granted)
}

func (s *session) revokeInSystem(ctx context.Context) error {
	name := hostingv1alpha1.HostedRoleName(s.group)
	if err := s.remove(ctx, bindingsResource, annexNamespace, name); err != nil {
		return err
	}
	return s.remove(ctx, rolesResource, annexNamespace, name)
}

func (s *session) revoke(ctx context.Context) error {
	err := s.revokeInSystem(ctx)
	if err == nil {
		err = s.remove(ctx, clusterRolesResource, "", hostingv1alpha1.HostedRoleName(s.group))
	}
	if err != nil {
		return fmt.Errorf("take back the rights for %s: %w", s.group, err)
	}
	return nil
}

// waitForRights waits until the main cluster has aggregated the rights. It does not wait if the user may
// not check that: annex reports missing rights itself.
func (s *session) waitForRights(ctx context.Context, granted rules) error {
	account := mainadmission.AccountOf(s.bound(ctx)).GetName()
	if account == "" {
		s.print(notChecked)
		return nil
	}
	var missing []footprint.Right
	err := wait.PollUntilContextTimeout(ctx, s.pollInterval, s.rightsTimeout, true, func(ctx context.Context) (_ bool, err error) {
		missing, err = footprint.MissingRights(ctx, s.Kube, account, footprint.RightsOf("", granted...))
		return len(missing) == 0, err
	})
	switch {
	case apierrors.IsForbidden(err):
		s.print(notChecked)
		return nil
	case err != nil && len(missing) > 0 && ctx.Err() == nil:
		return fmt.Errorf("wait for the rights of annex: %s may still not %s: see %s doctor", account, footprint.ListRights(missing), s.program)
	case err != nil:
		return fmt.Errorf("wait for the rights of annex: %w", err)
	}
	return nil
}

type rules = []rbacv1.PolicyRule

// finalizedRules let annex remove the policy that freezes a group, once the last definition was deleted.
func finalizedRules(group string) rules {
	return rules{{
		APIGroups: []string{admission.Group}, Resources: policies, ResourceNames: []string{hostingv1alpha1.FrozenPolicyName(group)}, Verbs: []string{"delete"},
	}}
}

var policies = []string{"validatingadmissionpolicies", "validatingadmissionpolicybindings"}

// dependantRules let annex change the owner references of dependants.
func dependantRules(dependants []schema.GroupResource) (all rules) {
	byGroup := map[string][]string{}
	for _, dependant := range dependants {
		byGroup[dependant.Group] = append(byGroup[dependant.Group], dependant.Resource)
	}
	for _, of := range slices.Sorted(maps.Keys(byGroup)) {
		all = append(all, rbacv1.PolicyRule{APIGroups: []string{of}, Resources: byGroup[of], Verbs: []string{"get", "list", "patch"}})
	}
	return all
}

// role returns the ClusterRole whose rules are aggregated to annex's.
func role(group string, granted rules) *rbacv1.ClusterRole {
	return &rbacv1.ClusterRole{
		TypeMeta:   metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "ClusterRole"},
		ObjectMeta: metav1.ObjectMeta{Name: hostingv1alpha1.HostedRoleName(group), Labels: map[string]string{hostingv1alpha1.AggregateLabel: "true"}},
		Rules:      granted,
	}
}

// systemRole returns the Role with the rights in NamespaceAnnexSystem that a command needs, and its binding to annex, or nil:
// only ClusterRoles are aggregated, and one would give these rights in every namespace.
func (s *session) systemRole(ctx context.Context, command string) (*rbacv1.Role, *rbacv1.RoleBinding) {
	if command != "move" && command != "rollback" {
		return nil, nil
	}
	of := metav1.ObjectMeta{Namespace: annexNamespace, Name: hostingv1alpha1.HostedRoleName(s.group)}
	version := rbacv1.SchemeGroupVersion.String()
	return &rbacv1.Role{TypeMeta: metav1.TypeMeta{APIVersion: version, Kind: "Role"}, ObjectMeta: of, Rules: maincopy.NamespaceRules()},
		&rbacv1.RoleBinding{
			TypeMeta: metav1.TypeMeta{APIVersion: version, Kind: "RoleBinding"}, ObjectMeta: of, Subjects: s.subjects(ctx),
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: of.Name},
		}
}
