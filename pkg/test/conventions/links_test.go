// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package conventions

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/annex-dev/annex/pkg/test/expect"
)

var (
	link      = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading   = regexp.MustCompile(`(?m)^#+ +(.*)$`)
	notAnchor = regexp.MustCompile(`[^a-z0-9 _-]`)
)

// TestLinks checks the links of the documentation to files and headings.
func TestLinks(t *testing.T) {
	t.Parallel()
	root := moduleRoot(t)
	pages := []string{filepath.Join(root, "README.md"), filepath.Join(root, "CONTRIBUTING.md")}
	for _, folder := range []string{"docs", "docs/design"} {
		found, err := filepath.Glob(filepath.Join(root, folder, "*.md"))
		expect.NoError(t, err)
		pages = append(pages, found...)
	}
	for _, page := range pages {
		for _, match := range link.FindAllStringSubmatch(read(t, page), -1) {
			target, anchor, _ := strings.Cut(match[1], "#")
			if strings.Contains(target, "://") {
				continue
			}
			path := page
			if target != "" {
				path = filepath.Join(filepath.Dir(page), target)
			}
			if _, err := os.Stat(path); err != nil {
				t.Errorf("%s links to %s, which is not there", filepath.Base(page), match[1])
				continue
			}
			if anchor != "" && !slices.Contains(anchors(read(t, path)), anchor) {
				t.Errorf("%s links to %s, which has no such heading", filepath.Base(page), match[1])
			}
		}
	}
}

// anchors returns the anchors of the headings of a page, as GitHub builds them.
func anchors(page string) []string {
	var all []string
	for _, match := range heading.FindAllStringSubmatch(page, -1) {
		plain := notAnchor.ReplaceAllString(strings.ToLower(match[1]), "")
		all = append(all, strings.ReplaceAll(plain, " ", "-"))
	}
	return all
}

func read(t *testing.T, path string) string {
	t.Helper()
	content, err := os.ReadFile(path)
	expect.NoError(t, err)
	return string(content)
}
