// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package differential

import (
	"os"
	"testing"

	"github.com/annex-dev/annex/pkg/cmd"
)

// serveVariable makes the test binary behave as annex, in a process of its own.
const serveVariable = "ANNEX_DIFFERENTIAL_TEST_SERVE"

func TestMain(m *testing.M) {
	if os.Getenv(serveVariable) != "" {
		os.Exit(cmd.Execute(os.Args[1:], os.Stdout, os.Stderr))
	}
	os.Exit(m.Run())
}
