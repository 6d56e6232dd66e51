// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"strings"
	"testing"

	"github.com/annex-dev/annex/pkg/test/crds"
	"github.com/annex-dev/annex/pkg/test/expect"
)

// TestGitOps serves Flux's CRDs and creates the examples with them, strictly validated, and merges Argo CD's ConfigMap. The
// chart's tests render the Application and the HelmRelease.
func TestGitOps(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	const gitops = "../../../artifacts/deploy/gitops/"
	for _, source := range crds.Flux() {
		manifests, err := crds.Load(t.Context(), source)
		expect.NoError(t, err)
		for _, manifest := range manifests {
			s.kubectl.feed(t, string(manifest.YAML), "apply", "--server-side", "-f", "-")
			s.kubectl.run(t, "wait", "--for=condition=Established", "crd/"+manifest.CRD.Name)
		}
	}
	for _, namespace := range []string{"flux-system", "argocd"} {
		s.kubectl.run(t, "create", "namespace", namespace)
	}
	created := s.kubectl.run(t, "apply", "--validate=strict", "-f", gitops+"flux/annex.yaml", "-f", gitops+"flux/helmrelease.yaml")
	// annex-system exists.
	expect.Equal(t, 5, strings.Count(created, " created"), "created:\n"+created)
	s.kubectl.run(t, "create", "configmap", "argocd-cm", "-n", "argocd", "--from-literal=url=https://argocd.example.com")
	s.kubectl.run(t, "-n", "argocd", "patch", "configmap", "argocd-cm", "--patch-file", gitops+"argocd/argocd-cm.yaml")
	expect.Contains(t, s.kubectl.run(t, "get", "configmap", "argocd-cm", "-n", "argocd", "-o", "yaml"), "https://argocd.example.com", "hosting.annex.dev_Migration")
}
