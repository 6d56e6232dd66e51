// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/annex-dev/annex/pkg/test/doctest"
	"github.com/annex-dev/annex/pkg/test/expect"
	"github.com/annex-dev/annex/pkg/test/process"
)

// TestDocs follows every page of the documentation that has something to follow,
// word for word; see the package page for how pages are read.
func TestDocs(t *testing.T) {
	t.Parallel()
	root, err := process.ModuleRoot(t.Context())
	expect.NoError(t, err)
	files, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	expect.NoError(t, err)
	followed := 0
	for _, file := range files {
		content, err := os.ReadFile(file)
		expect.NoError(t, err)
		if !doctest.Followable(string(content)) {
			continue
		}
		followed++
		t.Run(filepath.Base(file), func(t *testing.T) {
			t.Parallel()
			doctest.Run(t, string(content), filepath.Dir(programs.annex))
		})
	}
	if followed == 0 {
		t.Error("no page has anything to follow")
	}
}
