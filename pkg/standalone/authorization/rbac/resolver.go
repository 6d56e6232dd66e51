// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package rbac

import (
	"context"
	"fmt"
	"iter"
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"
)

// Source provides roles and bindings. Its results are shared and must not be changed.
type Source interface {
	// Role and ClusterRole return one of them, or an error.
	Role(ctx context.Context, namespace, name string) (*rbacv1.Role, error)
	ClusterRole(ctx context.Context, name string) (*rbacv1.ClusterRole, error)
	// RoleBindings and ClusterRoleBindings return, once each, at least the bindings
	// that have the user among their subjects.
	RoleBindings(ctx context.Context, namespace string, u user.Info) ([]*rbacv1.RoleBinding, error)
	ClusterRoleBindings(ctx context.Context, u user.Info) ([]*rbacv1.ClusterRoleBinding, error)
}

// Resolver finds the rules that apply to a user.
type Resolver struct {
	Source Source
}

// RulesFor returns all rules that apply to a user in a namespace or, if that is empty,
// cluster-wide. Rules are purely additive: with an error, the result is incomplete.
func (r Resolver) RulesFor(ctx context.Context, u user.Info, namespace string) ([]rbacv1.PolicyRule, error) {
	var rules []rbacv1.PolicyRule
	var errs []error
	for from, err := range r.grants(ctx, u, namespace) {
		if err != nil {
			errs = append(errs, err)
			continue
		}
		rules = append(rules, from.rules...)
	}
	return rules, utilerrors.NewAggregate(errs)
}

// RoleRules returns the rules of the role that a binding in a namespace refers to. The
// namespace is empty for a cluster role binding.
func (r Resolver) RoleRules(ctx context.Context, ref rbacv1.RoleRef, namespace string) ([]rbacv1.PolicyRule, error) {
	switch {
	case ref.Kind == "ClusterRole":
		role, err := r.Source.ClusterRole(ctx, ref.Name)
		if err != nil {
			return nil, err
		}
		return role.Rules, nil
	case ref.Kind == "Role" && namespace != "":
		role, err := r.Source.Role(ctx, namespace, ref.Name)
		if err != nil {
			return nil, err
		}
		return role.Rules, nil
	}
	return nil, fmt.Errorf("unsupported role reference kind: %q", ref.Kind)
}

// grant is the role that one binding grants to one of its subjects.
type grant struct {
	// binding, name and namespace are kind, name and namespace of the binding;
	// namespace is empty for a cluster role binding.
	binding, name, namespace string
	ref                      *rbacv1.RoleRef
	subject                  *rbacv1.Subject
	rules                    []rbacv1.PolicyRule
}

// String describes the binding as Kubernetes' RBAC authorizer does.
func (g grant) String() string {
	name := g.name
	if g.namespace != "" {
		name += "/" + g.namespace
	}
	subject := g.subject.Name
	if g.subject.Kind == rbacv1.ServiceAccountKind {
		subject += "/" + subjectNamespace(g.subject, g.namespace)
	}
	return fmt.Sprintf("%s %q of %s %q to %s %q", g.binding, name, g.ref.Kind, g.ref.Name, g.subject.Kind, subject)
}

// grants yields the grants of every binding to a user, and an error for each that
// refers to an unreadable role: first cluster role bindings, then the role bindings of
// the namespace, if any.
func (r Resolver) grants(ctx context.Context, u user.Info, namespace string) iter.Seq2[grant, error] {
	return func(yield func(grant, error) bool) {
		cluster, err := r.Source.ClusterRoleBindings(ctx, u)
		if err != nil && !yield(grant{}, err) {
			return
		}
		for _, binding := range cluster {
			if !r.yield(ctx, u, grant{binding: "ClusterRoleBinding", name: binding.Name, ref: &binding.RoleRef}, binding.Subjects, yield) {
				return
			}
		}
		if namespace == "" {
			return
		}
		bindings, err := r.Source.RoleBindings(ctx, namespace, u)
		if err != nil && !yield(grant{}, err) {
			return
		}
		for _, binding := range bindings {
			if !r.yield(ctx, u, grant{binding: "RoleBinding", name: binding.Name, namespace: namespace, ref: &binding.RoleRef}, binding.Subjects, yield) {
				return
			}
		}
	}
}

// yield completes and yields the grant of a binding, if the user is one of its subjects.
func (r Resolver) yield(ctx context.Context, u user.Info, of grant, subjects []rbacv1.Subject, yield func(grant, error) bool) bool {
	of.subject = firstSubject(subjects, of.namespace, u)
	if of.subject == nil {
		return true
	}
	var err error
	of.rules, err = r.RoleRules(ctx, *of.ref, of.namespace)
	return yield(of, err)
}

// firstSubject returns the first of a binding's subjects that matches the user, or nil.
func firstSubject(subjects []rbacv1.Subject, namespace string, u user.Info) *rbacv1.Subject {
	for i := range subjects {
		if is(u, &subjects[i], namespace) {
			return &subjects[i]
		}
	}
	return nil
}

// is reports whether the user matches a subject of a binding in a namespace.
func is(u user.Info, subject *rbacv1.Subject, namespace string) bool {
	switch subject.Kind {
	case rbacv1.UserKind:
		return u.GetName() == subject.Name
	case rbacv1.GroupKind:
		return slices.Contains(u.GetGroups(), subject.Name)
	case rbacv1.ServiceAccountKind:
		of := subjectNamespace(subject, namespace)
		return of != "" && serviceaccount.MatchesUsername(of, subject.Name, u.GetName())
	}
	return false
}

// subjectNamespace returns the namespace of a service account. It defaults to the
// binding's namespace.
func subjectNamespace(subject *rbacv1.Subject, namespace string) string {
	if subject.Namespace != "" {
		return subject.Namespace
	}
	return namespace
}
