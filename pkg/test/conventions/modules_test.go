// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package conventions

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/annex-dev/annex/pkg/test/expect"
)

// requirement matches a module and its version in go.mod, without replacements.
var requirement = regexp.MustCompile(`(?m)^(?:require )?\t?([a-z][^\s]*\.[^\s]*) (v\S+)`)

// TestToolsShareVersions keeps the modules of programs that are built beside annex on its versions: a
// package whose dependencies differ is compiled once more, which takes minutes on a new machine.
func TestToolsShareVersions(t *testing.T) {
	t.Parallel()
	main := requirements(t, "go.mod")
	for _, tool := range []string{"cluster", "etcd", "kubectl", "operator"} {
		path := filepath.Join("hack", "tools", tool, "go.mod")
		shared := 0
		for module, version := range requirements(t, path) {
			want, known := main[module]
			if !known {
				continue
			}
			shared++
			// Staging modules of k8s.io/kubernetes are v0.0.0, and replaced.
			if version != want && version != "v0.0.0" {
				t.Errorf("%s has %s %s, go.mod has %s: run go get %s@%s in its folder, or upgrade go.mod", path, module, version, want, module, want)
			}
		}
		if shared < 10 {
			t.Errorf("%s shares only %d modules with go.mod: the search is wrong", path, shared)
		}
	}
}

func requirements(t *testing.T, path string) map[string]string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(moduleRoot(t), path))
	expect.NoError(t, err)
	found := map[string]string{}
	for _, match := range requirement.FindAllStringSubmatch(string(content), -1) {
		found[match[1]] = match[2]
	}
	return found
}
