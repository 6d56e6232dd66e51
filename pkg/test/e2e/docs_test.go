// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/annex-dev/annex/pkg/test/docs"
	"github.com/annex-dev/annex/pkg/test/expect"
	"github.com/annex-dev/annex/pkg/test/process"
)

// TestDocs reads the pages that need no main cluster.
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
		if !docs.HasCommands(string(content)) || isOfDay(filepath.Base(file)) {
			continue
		}
		followed++
		t.Run(filepath.Base(file), func(t *testing.T) {
			t.Parallel()
			reader := docs.NewReader(t, filepath.Dir(programs.annex))
			reader.Read(t, string(content))
			reader.Stop(t)
		})
	}
	if followed == 0 {
		t.Error("no page has commands")
	}
}

func isOfDay(page string) bool {
	return slices.ContainsFunc(docs.Day, func(section docs.Section) bool { return section.Page == page })
}
