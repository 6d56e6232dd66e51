// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package groups

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/yaml"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
)

// groupsBinding binds the role to which the rights for groups are aggregated.
const groupsBinding = "annex-hosted-groups"

// printRights prints the roles as manifests.
func (s *session) printRights(ctx context.Context, name string, wanted rules) error {
	objects := []any{role(s.group, wanted)}
	if inSystem := systemRules(name); inSystem != nil {
		role, binding := systemRole(s.group, inSystem, s.subjects(ctx))
		objects = append(objects, role, binding)
	}
	for i, object := range objects {
		manifest, err := json.Marshal(object)
		if err == nil {
			manifest, err = yaml.JSONToYAML(manifest)
		}
		if err != nil {
			return fmt.Errorf("encode the roles: %w", err)
		}
		if i > 0 {
			s.print("---")
		}
		if _, err := s.out.Write(manifest); err != nil {
			return fmt.Errorf("print the roles: %w", err)
		}
	}
	return nil
}

// subjects returns the users that annex is in the main cluster: by default the service account of the manifests.
func (s *session) subjects(ctx context.Context) []rbacv1.Subject {
	binding, err := s.main.RbacV1().ClusterRoleBindings().Get(ctx, groupsBinding, metav1.GetOptions{})
	if err != nil || len(binding.Subjects) == 0 {
		return []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: hostingv1alpha1.NamespaceAnnexSystem, Name: "annex"}}
	}
	return binding.Subjects
}

// grantInSystem creates or updates the Role in NamespaceAnnexSystem, or deletes it if a command needs
// none.
func (s *session) grantInSystem(ctx context.Context, name string) error {
	inSystem := systemRules(name)
	if inSystem == nil {
		return s.revokeInSystem(ctx)
	}
	wanted, binding := systemRole(s.group, inSystem, s.subjects(ctx))
	roles, bindings := s.main.RbacV1().Roles(wanted.Namespace), s.main.RbacV1().RoleBindings(wanted.Namespace)
	// Both are read first: users who may not write them may use what an administrator has applied.
	role, err := roles.Get(ctx, wanted.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		_, err = roles.Create(ctx, wanted, metav1.CreateOptions{})
	case err == nil && !equality.Semantic.DeepEqual(role.Rules, wanted.Rules):
		_, err = roles.Update(ctx, wanted, metav1.UpdateOptions{})
	}
	if err != nil {
		return err
	}
	bound, err := bindings.Get(ctx, binding.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		_, err = bindings.Create(ctx, binding, metav1.CreateOptions{})
	case err == nil && !slices.EqualFunc(bound.Subjects, binding.Subjects, sameSubject):
		_, err = bindings.Update(ctx, binding, metav1.UpdateOptions{})
	}
	return err
}

func sameSubject(a, b rbacv1.Subject) bool {
	return a.Kind == b.Kind && a.Namespace == b.Namespace && a.Name == b.Name
}

func (s *session) revokeInSystem(ctx context.Context) error {
	name, rbac := hostingv1alpha1.HostedRoleName(s.group), s.main.RbacV1()
	for _, remove := range []func(context.Context, string, metav1.DeleteOptions) error{
		rbac.RoleBindings(hostingv1alpha1.NamespaceAnnexSystem).Delete, rbac.Roles(hostingv1alpha1.NamespaceAnnexSystem).Delete,
	} {
		if err := remove(ctx, name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			return err
		}
	}
	return nil
}

// grant creates or updates the ClusterRole with the rights for the group, and waits until annex has
// them.
func (s *session) grant(ctx context.Context, name string, rights rules) error {
	wanted := role(s.group, rights)
	done, err := s.apply(ctx, wanted)
	if err == nil {
		err = s.grantInSystem(ctx, name)
	}
	if apierrors.IsForbidden(err) {
		return fmt.Errorf("grant annex the rights for %s: %w; an administrator can apply what this prints: %s", s.group, err, s.command(name, "--print-rights"))
	}
	if err != nil {
		return fmt.Errorf("grant annex the rights for %s: %w", s.group, err)
	}
	s.print("clusterrole.rbac.authorization.k8s.io/%s %s", wanted.Name, done)
	return s.waitForRights(ctx, rights)
}

// apply returns what was done, as kubectl says it.
func (s *session) apply(ctx context.Context, wanted *rbacv1.ClusterRole) (done string, err error) {
	roles := s.main.RbacV1().ClusterRoles()
	err = retry.RetryOnConflict(retry.DefaultRetry, func() error {
		current, err := roles.Get(ctx, wanted.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			done = "created"
			_, err = roles.Create(ctx, wanted, metav1.CreateOptions{})
			return err
		}
		if err != nil {
			return err
		}
		if equality.Semantic.DeepEqual(current.Rules, wanted.Rules) && current.Labels[hostingv1alpha1.AggregateLabel] == "true" {
			done = "unchanged"
			return nil
		}
		done = "configured"
		current.Rules = wanted.Rules
		metav1.SetMetaDataLabel(&current.ObjectMeta, hostingv1alpha1.AggregateLabel, "true")
		_, err = roles.Update(ctx, current, metav1.UpdateOptions{})
		return err
	})
	return done, err
}

// revoke deletes the ClusterRole.
func (s *session) revoke(ctx context.Context) error {
	name := hostingv1alpha1.HostedRoleName(s.group)
	if err := s.revokeInSystem(ctx); err != nil {
		return fmt.Errorf("take back the rights for %s: %w", s.group, err)
	}
	err := s.main.RbacV1().ClusterRoles().Delete(ctx, name, metav1.DeleteOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("take back the rights for %s: %w", s.group, err)
	}
	s.print("clusterrole.rbac.authorization.k8s.io/%s deleted", name)
	return nil
}

// annexSubject returns the subject that annex is in the main cluster, and false if it is unknown.
func (s *session) annexSubject(ctx context.Context) (subject rbacv1.Subject, known bool) {
	binding, err := s.main.RbacV1().ClusterRoleBindings().Get(ctx, groupsBinding, metav1.GetOptions{})
	if err != nil || len(binding.Subjects) == 0 {
		return rbacv1.Subject{}, false
	}
	return binding.Subjects[0], true
}

// waitForRights waits until the main cluster has aggregated the rights. Not every user may ask for
// that; annex reports missing rights itself.
func (s *session) waitForRights(ctx context.Context, rights rules) error {
	subject, known := s.annexSubject(ctx)
	if !known {
		s.print("Not checked whether annex has these rights yet.")
		return nil
	}
	missing := ""
	err := wait.PollUntilContextTimeout(ctx, s.pollInterval, s.rightsTimeout, true, func(ctx context.Context) (bool, error) {
		var err error
		missing, err = s.missing(ctx, subject, rights)
		return missing == "", err
	})
	switch {
	case apierrors.IsForbidden(err):
		s.print("Not checked whether annex has these rights yet.")
		return nil
	case err != nil && missing != "" && ctx.Err() == nil:
		return fmt.Errorf("wait for the rights of annex: %s may still not %s: see %s doctor", subject.Name, missing, s.program)
	case err != nil:
		return fmt.Errorf("wait for the rights of annex: %w", err)
	}
	return nil
}

// missing returns the first right that a subject does not have, or "".
func (s *session) missing(ctx context.Context, subject rbacv1.Subject, rights rules) (string, error) {
	for _, rule := range rights {
		name := ""
		if len(rule.ResourceNames) > 0 {
			name = rule.ResourceNames[0]
		}
		for _, verb := range rule.Verbs {
			of := &authorizationv1.ResourceAttributes{Verb: verb, Group: rule.APIGroups[0], Resource: rule.Resources[0], Name: name}
			review, err := s.main.AuthorizationV1().SubjectAccessReviews().Create(ctx, reviewOf(subject, of), metav1.CreateOptions{})
			if err != nil {
				return "", err
			}
			if !review.Status.Allowed {
				return verb + " " + of.Resource + "." + of.Group, nil
			}
		}
	}
	return "", nil
}

func reviewOf(subject rbacv1.Subject, of *authorizationv1.ResourceAttributes) *authorizationv1.SubjectAccessReview {
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{ResourceAttributes: of, Groups: []string{"system:authenticated"}}}
	switch subject.Kind {
	case rbacv1.ServiceAccountKind:
		review.Spec.User = "system:serviceaccount:" + subject.Namespace + ":" + subject.Name
		review.Spec.Groups = append(review.Spec.Groups, "system:serviceaccounts", "system:serviceaccounts:"+subject.Namespace)
	case rbacv1.GroupKind:
		review.Spec.Groups = append(review.Spec.Groups, subject.Name)
	default:
		review.Spec.User = subject.Name
	}
	return review
}
