// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package annextest

import (
	"testing"

	"github.com/annex-dev/annex/pkg/test/expect"
	"github.com/annex-dev/annex/pkg/test/maincluster"
	"github.com/annex-dev/annex/pkg/version"
)

// Minor versions of Kubernetes.
const (
	// firstMutatingPolicies is the first that serves MutatingAdmissionPolicies in v1.
	firstMutatingPolicies = 36
	// firstVerifyingProbe is the first that verifies the serving certificate when it probes an APIService.
	firstVerifyingProbe = 36
)

// HasMutatingPolicies reports whether annex can apply MutatingAdmissionPolicies of the main cluster.
func HasMutatingPolicies(t testing.TB, cluster *maincluster.Cluster) bool {
	t.Helper()
	return minor(t, cluster) >= firstMutatingPolicies
}

// ReportsWrongAuthorities reports whether the main cluster sees that an APIService has the wrong certificate authorities.
func ReportsWrongAuthorities(t testing.TB, cluster *maincluster.Cluster) bool {
	t.Helper()
	return minor(t, cluster) >= firstVerifyingProbe
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
