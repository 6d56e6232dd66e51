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

// TestDocs types the commands of every documentation page, as package doctest describes.
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
		if !doctest.HasCommands(string(content)) {
			continue
		}
		followed++
		t.Run(filepath.Base(file), func(t *testing.T) {
			t.Parallel()
			doctest.Run(t, string(content), filepath.Dir(programs.annex))
		})
	}
	if followed == 0 {
		t.Error("no page has commands")
	}
}
