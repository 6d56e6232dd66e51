// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package escalation

import (
	"fmt"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
)

// describe returns sorted rules as text. Rules that differ only in the verb are merged: they
// were split for the comparison.
func describe(rules []rbacv1.PolicyRule) []string {
	verbs := map[string][]string{}
	for i := range rules {
		of := describeObjects(&rules[i])
		verbs[of] = append(verbs[of], rules[i].Verbs...)
	}
	descriptions := make([]string, 0, len(verbs))
	for of, verbs := range verbs {
		descriptions = append(descriptions, fmt.Sprintf("{%s, Verbs:%q}", of, verbs))
	}
	slices.Sort(descriptions)
	return descriptions
}

// describeObjects describes a rule without verbs.
func describeObjects(rule *rbacv1.PolicyRule) string {
	var parts []string
	for _, part := range []struct {
		name   string
		values []string
	}{
		{"APIGroups", rule.APIGroups}, {"Resources", rule.Resources}, {"NonResourceURLs", rule.NonResourceURLs}, {"ResourceNames", rule.ResourceNames},
	} {
		if len(part.values) > 0 {
			parts = append(parts, fmt.Sprintf("%s:%q", part.name, part.values))
		}
	}
	return strings.Join(parts, ", ")
}
