// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package move

import (
	"os"
	"testing"

	"github.com/annex-dev/annex/pkg/test/maincluster"
)

// mainCluster is shared by all tests.
var mainCluster *maincluster.Cluster

func TestMain(m *testing.M) {
	options := maincluster.Options{Controllers: []string{maincluster.NoControllers}}
	os.Exit(maincluster.RunTests(m, options, func(started *maincluster.Cluster) { mainCluster = started }))
}
