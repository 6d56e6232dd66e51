// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/annex-dev/annex/pkg/test/expect"
	"github.com/annex-dev/annex/pkg/test/process"
)

// Section is a part of a page.
type Section struct {
	// Page is its file in docs.
	Page string
	// Heading is the line that it begins with.
	Heading string
}

// Day is the first day with annex behind a main cluster, in order.
var Day = []Section{
	{"install.md", "# Install annex in a cluster"},
	{"aggregated.md", "## Step by step"},
	{"install.md", "## Check the installation"},
	{"install.md", "## Allow a group"},
	{"diagnose.md", "## annex diagnose"},
	{"certificates.md", "## Aggregated"},
	{"certificates.md", "### CA rotation"},
	{"crd-sync.md", "## Delete a CRD"},
	{"moving.md", "## Finalize"},
	{"moving.md", "## Roll back"},
}

// QuickStart needs a clone, as [Reader.Clones] makes one.
var QuickStart = Section{"../README.md", "## Quick start"}

// Sections of releases.md: each is typed in a folder of its own.
var (
	MakeRelease    = Section{"releases.md", "## Make a release"}
	CheckDownload  = Section{"releases.md", "### Check a download"}
	ReproduceBuild = Section{"releases.md", "### Reproduce a build"}
)

// InParts reports whether tests type sections of a page instead of all of it.
func InParts(page string) bool {
	return page == MakeRelease.Page || slices.ContainsFunc(Day, func(s Section) bool { return s.Page == page })
}

// Text returns the text of a section up to the next heading, of any level.
func (s Section) Text(t testing.TB) string {
	t.Helper()
	root, err := process.ModuleRoot(t.Context())
	expect.NoError(t, err)
	content, err := os.ReadFile(filepath.Join(root, "docs", s.Page))
	expect.NoError(t, err)
	_, after, found := strings.Cut("\n"+string(content), "\n"+s.Heading+"\n")
	if !found {
		t.Fatalf("docs/%s has no section %q", s.Page, s.Heading)
	}
	text, _, _ := strings.Cut(after, "\n#")
	return text
}
