// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/annex-dev/annex/pkg/test/docs"
	"github.com/annex-dev/annex/pkg/test/expect"
	"github.com/annex-dev/annex/pkg/test/process"
)

// TestDocs types the pages that need neither a main cluster nor a clone.
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
		if !docs.HasCommands(string(content)) || docs.InParts(filepath.Base(file)) {
			continue
		}
		followed++
		t.Run(filepath.Base(file), func(t *testing.T) {
			t.Parallel()
			reader := docs.NewReader(t)
			reader.Read(t, string(content))
			reader.Stop(t)
		})
	}
	if followed == 0 {
		t.Error("no page has commands")
	}
}

// TestQuickStart types what the README shows, into a clone.
func TestQuickStart(t *testing.T) {
	t.Parallel()
	reader := docs.NewReader(t)
	reader.Timeout = 15 * time.Minute // to link annex
	reader.Clones(t)
	reader.Read(t, docs.QuickStart.Text(t))
	reader.Stop(t)
}
