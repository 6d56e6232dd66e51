// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package annextest

import (
	"testing"

	"github.com/annex-dev/annex/pkg/test/expect"
	"github.com/annex-dev/annex/pkg/test/maincluster"
	"github.com/annex-dev/annex/pkg/version"
)

// firstMutatingPolicies is the first minor version of Kubernetes that serves MutatingAdmissionPolicies in v1.
const firstMutatingPolicies = 36

// HasMutatingPolicies reports whether annex can apply MutatingAdmissionPolicies of the main cluster.
func HasMutatingPolicies(t testing.TB, cluster *maincluster.Cluster) bool {
	t.Helper()
	return minor(t, cluster) >= firstMutatingPolicies
}

// HasVersionOfAnnex reports whether the main cluster has the minor version of Kubernetes that annex is built from:
// others have other OpenAPI documents, and validate differently.
func HasVersionOfAnnex(t testing.TB, cluster *maincluster.Cluster) bool {
	t.Helper()
	return minor(t, cluster) == version.Kubernetes().Minor()
}

func minor(t testing.TB, cluster *maincluster.Cluster) uint {
	t.Helper()
	found, err := cluster.Version()
	expect.NoError(t, err)
	return found.Minor()
}
