// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Section is a part of a page.
type Section struct {
	// Page is its file in docs.
	Page string
	// Heading is the line that it begins with. The part before all others has none.
	Heading string
}

// Day is the first day with annex behind a main cluster, in order. Tests without a main cluster do not read these pages.
var Day = []Section{
	{"install.md", ""},
	{"aggregated.md", "## Step by step"},
	{"install.md", "## Check the installation"},
	{"install.md", "## Allow a group"},
	{"diagnose.md", "## annex diagnose"},
	{"certificates.md", "## Aggregated"},
	{"crd-sync.md", "## Delete a CRD"},
	{"moving.md", "## Finalize"},
	{"moving.md", "## Roll back"},
}

// Text returns the text of a section, without its subsections of the same level.
func (s Section) Text(root string) (string, error) {
	content, err := os.ReadFile(filepath.Join(root, "docs", s.Page))
	if err != nil {
		return "", fmt.Errorf("read a page: %w", err)
	}
	page := "\n" + string(content)
	if s.Heading == "" {
		before, _, _ := strings.Cut(page, "\n## ")
		return before, nil
	}
	_, after, found := strings.Cut(page, "\n"+s.Heading+"\n")
	if !found {
		return "", fmt.Errorf("docs/%s has no section %s", s.Page, s.Heading)
	}
	level, _, _ := strings.Cut(s.Heading, " ")
	text, _, _ := strings.Cut(after, "\n"+level+" ")
	return text, nil
}
