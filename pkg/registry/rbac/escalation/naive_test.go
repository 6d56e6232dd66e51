// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package escalation_test

import (
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apiserver/pkg/authentication/user"
)

// request is a request for a path, or for an object, namespaced or not.
type request struct {
	verb, path                              string
	namespace, group, resource, part, named string
}

// everything has a request of each kind that the rules of a fixture distinguish: for each
// wildcard in a rule there is a value that no rule has.
var everything = func() []request {
	var all []request
	verbs := []string{"get", "escalate", "bind", "other"}
	for _, verb := range verbs {
		for _, path := range []string{"/u", "/u/v", "/u/other", "/other"} {
			all = append(all, request{verb: verb, path: path})
		}
		for _, namespace := range []string{"", "n0", "n1"} {
			for _, group := range []string{"g", rbacv1.GroupName, "other"} {
				for _, resource := range []string{"a", "roles", "clusterroles", "other"} {
					for _, part := range []string{"", "s", "other"} {
						for _, named := range []string{"", "c0", "r0", "other"} {
							all = append(all, request{verb: verb, namespace: namespace, group: group, resource: resource, part: part, named: named})
						}
					}
				}
			}
		}
	}
	return all
}()

// naive reports whether a user is authorized, by evaluating every binding independently of
// the code under test.
func (w *fixture) naive(subject user.Info, r request) bool {
	for _, b := range w.clusterRoleBindings {
		if naiveSubject(subject, b.Subjects, "") && naiveRules(w.naiveRole(b.RoleRef, ""), r) {
			return true
		}
	}
	for _, b := range w.roleBindings {
		if r.path == "" && r.namespace == b.Namespace && naiveSubject(subject, b.Subjects, b.Namespace) && naiveRules(w.naiveRole(b.RoleRef, b.Namespace), r) {
			return true
		}
	}
	return false
}

func (w *fixture) naiveRole(ref rbacv1.RoleRef, namespace string) []rbacv1.PolicyRule {
	if ref.Kind == "Role" {
		for _, role := range w.roles {
			if role.Namespace == namespace && role.Name == ref.Name {
				return role.Rules
			}
		}
		return nil
	}
	for _, role := range w.clusterRoles {
		if role.Name == ref.Name {
			return role.Rules
		}
	}
	return nil
}

func naiveSubject(subject user.Info, subjects []rbacv1.Subject, namespace string) bool {
	for _, s := range subjects {
		switch s.Kind {
		case "User":
			if s.Name == subject.GetName() {
				return true
			}
		case "Group":
			for _, group := range subject.GetGroups() {
				if s.Name == group {
					return true
				}
			}
		case "ServiceAccount":
			if s.Namespace != "" {
				namespace = s.Namespace
			}
			if subject.GetName() == "system:serviceaccount:"+namespace+":"+s.Name {
				return true
			}
		}
	}
	return false
}

func naiveRules(rules []rbacv1.PolicyRule, r request) bool {
	for _, rule := range rules {
		if !slices.Contains(rule.Verbs, "*") && !slices.Contains(rule.Verbs, r.verb) {
			continue
		}
		if r.path != "" {
			if naivePath(rule.NonResourceURLs, r.path) {
				return true
			}
			continue
		}
		whole := r.resource
		if r.part != "" {
			whole += "/" + r.part
		}
		group := slices.Contains(rule.APIGroups, "*") || slices.Contains(rule.APIGroups, r.group)
		resource := slices.Contains(rule.Resources, "*") || slices.Contains(rule.Resources, whole) || r.part != "" && slices.Contains(rule.Resources, "*/"+r.part)
		named := len(rule.ResourceNames) == 0 || slices.Contains(rule.ResourceNames, r.named)
		if group && resource && named {
			return true
		}
	}
	return false
}

func naivePath(patterns []string, path string) bool {
	for _, pattern := range patterns {
		if prefix, ok := strings.CutSuffix(pattern, "*"); pattern == path || ok && strings.HasPrefix(path, prefix) {
			return true
		}
	}
	return false
}
