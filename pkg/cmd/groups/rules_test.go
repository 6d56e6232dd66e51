// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package groups

import (
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	deploy "github.com/annex-dev/annex/artifacts/deploy"
	"github.com/annex-dev/annex/pkg/aggregated/maincopy"
	"github.com/annex-dev/annex/pkg/test/expect"
)

// rights returns each right of rules, as "<verb> <resource>.<group>/<name>".
func rights(all rules) map[string]bool {
	found := map[string]bool{}
	for _, rule := range all {
		for _, of := range rule.APIGroups {
			for _, resource := range rule.Resources {
				for _, verb := range rule.Verbs {
					names := rule.ResourceNames
					if len(names) == 0 {
						names = []string{""}
					}
					for _, name := range names {
						found[verb+" "+resource+"."+of+"/"+name] = true
					}
				}
			}
		}
	}
	return found
}

// ofManifests are the rights that annex has in any cluster, except those in a namespace.
func ofManifests(t *testing.T) rules {
	t.Helper()
	var all rules
	for document := range strings.SplitSeq(deploy.RBAC, "\n---\n") {
		var role rbacv1.ClusterRole
		expect.NoError(t, yaml.Unmarshal([]byte(document), &role))
		if role.Kind == "ClusterRole" {
			all = append(all, role.Rules...)
		}
	}
	return all
}

// TestRightsAreEnough: with what the commands grant, annex has all rights that its work on the main
// cluster's copy needs.
func TestRightsAreEnough(t *testing.T) {
	t.Parallel()
	manifests := ofManifests(t)
	for name, granted := range map[string]rules{"move": moveRules(group, both), "rollback": rollbackRules(group, both, nil)} {
		has := rights(slices.Concat(manifests, granted))
		for right := range rights(maincopy.ClusterRules(group, both...)) {
			anyName, _, _ := strings.Cut(right, "/")
			if !has[right] && !has[anyName+"/"] {
				t.Errorf("%s does not grant %s", name, right)
			}
		}
		expect.Equal(t, maincopy.NamespaceRules(), systemRules(name))
	}
	// A deletion creates nothing.
	for right := range rights(maincopy.ClusterRules(group, both...)) {
		anyName, _, _ := strings.Cut(right, "/")
		if has := rights(slices.Concat(manifests, finalizeRules(group, both))); !has[right] && !has[anyName+"/"] && right != "create *.example.com/" {
			t.Errorf("finalize does not grant %s", right)
		}
	}
	owners, dependants := maincopy.OwnerRules()[0].Verbs, rollbackRules(group, both, []schema.GroupResource{{Resource: "pods"}})
	expect.Equal(t, owners, dependants[len(dependants)-1].Verbs)
}
