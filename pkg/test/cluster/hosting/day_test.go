// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package hosting

import (
	"testing"

	"github.com/annex-dev/annex/pkg/test/docs"
	"github.com/annex-dev/annex/pkg/test/maincluster"
)

// TestDay types what the documentation shows of a first day with annex behind a main cluster, in a clone.
func TestDay(t *testing.T) {
	t.Parallel()
	cluster := maincluster.StartForTest(t, fewControllers)
	reader := docs.NewReader(t)
	reader.Clones(t)
	reader.Type(t, "git clone https://github.com/annex-dev/annex && cd annex && export KUBECONFIG="+cluster.Kubeconfig)
	for _, section := range docs.Day {
		t.Logf("%s %s", section.Page, section.Heading)
		reader.Read(t, section.Text(t))
	}
	reader.Stop(t)
}
