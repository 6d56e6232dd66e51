// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package move

import (
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/component-helpers/auth/rbac/validation"
	"sigs.k8s.io/yaml"

	deploy "github.com/annex-dev/annex/artifacts/deploy"
	"github.com/annex-dev/annex/pkg/aggregated/maincopy"
	"github.com/annex-dev/annex/pkg/cmd/internal/footprint"
	"github.com/annex-dev/annex/pkg/test/expect"
)

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
	needed := maincopy.ClusterRules(group, both...)
	for _, test := range []struct {
		name    string
		granted rules
		missing string
	}{
		{"move", moveRules(group, both), ""},
		{"rollback", rollbackRules(group, both, nil), ""},
		// A deletion creates nothing.
		{"finalize", finalizeRules(group, both), "create *.example.com"},
	} {
		_, missing := validation.Covers(slices.Concat(manifests, test.granted), needed)
		expect.Equal(t, test.missing, footprint.ListRights(footprint.RightsOf("", missing...)), test.name)
		if test.missing == "" {
			expect.Equal(t, maincopy.NamespaceRules(), systemRules(test.name))
		}
	}
	owners, dependants := maincopy.OwnerRules()[0].Verbs, rollbackRules(group, both, []schema.GroupResource{{Resource: "pods"}})
	expect.Equal(t, owners, dependants[len(dependants)-1].Verbs)
}
