// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/annex-dev/annex/pkg/test/expect"
	"github.com/annex-dev/annex/pkg/test/process"
)

// Clones lets `git clone` of annex's address clone the last commit of the repository of this test, and lets go build with
// the caches of this test. It skips the test if the repository is an archive without git's data.
func (r *Reader) Clones(t *testing.T) {
	t.Helper()
	root, err := process.ModuleRoot(t.Context())
	expect.NoError(t, err)
	if _, err := os.Stat(filepath.Join(root, ".git")); err != nil {
		t.Skipf("there is nothing to clone: %v", err)
	}
	r.Type(t, fmt.Sprintf("git config --global url.%s.insteadOf https://github.com/annex-dev/annex", root))
	r.Type(t, "git config --global safe.directory '*'")
	for _, name := range []string{"GOENV", "GOCACHE", "GOMODCACHE", "GOFLAGS", "GOPROXY", "GOSUMDB"} {
		value, err := exec.CommandContext(t.Context(), "go", "env", name).Output()
		expect.NoError(t, err)
		r.Type(t, fmt.Sprintf("export %s='%s'", name, strings.TrimSpace(string(value))))
	}
}
