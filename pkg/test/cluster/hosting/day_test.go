// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package hosting

import (
	"path/filepath"
	"testing"

	"github.com/annex-dev/annex/pkg/test/docs"
	"github.com/annex-dev/annex/pkg/test/expect"
	"github.com/annex-dev/annex/pkg/test/maincluster"
	"github.com/annex-dev/annex/pkg/test/process"
)

// TestDay types what the documentation shows of a first day with annex behind a main cluster, in a clone.
func TestDay(t *testing.T) {
	t.Parallel()
	root, err := process.ModuleRoot(t.Context())
	expect.NoError(t, err)
	cluster := maincluster.StartForTest(t, fewControllers)
	reader := docs.NewReader(t, filepath.Join(root, "bin"))
	reader.Clones(t)
	reader.Type(t, "git clone https://github.com/annex-dev/annex && cd annex && export KUBECONFIG="+cluster.Kubeconfig)
	for _, section := range docs.Day {
		t.Logf("%s %s", section.Page, section.Heading)
		reader.Read(t, section.Text(t))
	}
	reader.Stop(t)
}
