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
)

// Clones lets `git clone` of annex's address clone the last commit of the repository of this test, and lets go build with
// the caches of this test. It skips the test if the repository is an archive without git's data.
func (r *Reader) Clones(t *testing.T) {
	t.Helper()
	if _, err := os.Stat(filepath.Join(r.root, ".git")); err != nil {
		t.Skipf("there is nothing to clone: %v", err)
	}
	r.Type(t, fmt.Sprintf("git config --global url.%s.insteadOf https://github.com/annex-dev/annex", r.root))
	r.Type(t, "git config --global safe.directory '*'")
	names := []string{"GOENV", "GOCACHE", "GOMODCACHE", "GOFLAGS", "GOPROXY", "GOSUMDB"}
	values, err := exec.CommandContext(t.Context(), "go", append([]string{"env"}, names...)...).Output()
	expect.NoError(t, err)
	for i, value := range strings.Split(strings.TrimSuffix(string(values), "\n"), "\n") {
		r.Type(t, fmt.Sprintf("export %s='%s'", names[i], value))
	}
}
