// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package conventions

import (
	"go/ast"
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

	namedTest   = regexp.MustCompile("`(?:[a-z0-9]+\\.)?((?:Test|Benchmark)[A-Za-z0-9]+)[/`]")
	namedFolder = regexp.MustCompile("`(pkg/[a-z0-9/]+)`")
)

// pages returns the paths of the documentation.
func pages(t *testing.T) []string {
	t.Helper()
	root := moduleRoot(t)
	all := []string{filepath.Join(root, "README.md"), filepath.Join(root, "CONTRIBUTING.md")}
	for _, folder := range []string{"docs", "docs/design"} {
		found, err := filepath.Glob(filepath.Join(root, folder, "*.md"))
		expect.NoError(t, err)
		all = append(all, found...)
	}
	return all
}

// TestNames checks that the tests, benchmarks and folders that the documentation names exist.
func TestNames(t *testing.T) {
	t.Parallel()
	functions := map[string]bool{}
	eachFile(t, func(_ *testing.T, file sourceFile) {
		for _, declaration := range file.syntax.Decls {
			if function, ok := declaration.(*ast.FuncDecl); ok {
				functions[function.Name.Name] = true
			}
		}
	})
	for _, page := range pages(t) {
		content := read(t, page)
		for _, match := range namedTest.FindAllStringSubmatch(content, -1) {
			if !functions[match[1]] {
				t.Errorf("%s names %s, which is not there", filepath.Base(page), match[1])
			}
		}
		for _, match := range namedFolder.FindAllStringSubmatch(content, -1) {
			if _, err := os.Stat(filepath.Join(moduleRoot(t), match[1])); err != nil {
				t.Errorf("%s names %s, which is not there", filepath.Base(page), match[1])
			}
		}
	}
}

// TestLinks checks the links of the documentation to files and headings.
func TestLinks(t *testing.T) {
	t.Parallel()
	for _, page := range pages(t) {
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
