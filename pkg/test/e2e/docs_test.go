// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/annex-dev/annex/pkg/test/expect"
	"github.com/annex-dev/annex/pkg/test/process"
)

// TestDocs tests every page of the documentation: it types the commands word for word, in
// order, in one shell, and compares their output.
//
// It uses fenced blocks. Indented blocks are not run.
//
//   - A block of `sh` contains commands that succeed.
//   - A block of `console` contains commands after `$ ` (continued after `> ` or in a
//     here-document) with their output. A command fails if its output has a line that begins with
//     `Error`, `error` or `annex: `, or reports an object as invalid; the others succeed. `…`
//     matches any text, and alone on a line any lines; ages, times and column widths are ignored.
//     Read-only commands (`kubectl get`, `kubectl auth`, `grep` and others) are repeated until
//     the output matches.
//   - A block of any other language is written to the file that the paragraph above names last,
//     in backquotes. Without a file name it is ignored.
//   - `annex serve` runs in the background, as in another terminal: the next command is typed when
//     annex is ready. A second `annex serve` stops the first, as Ctrl-C does.
//
// The shell starts in an empty folder that is its home. 127.0.0.1:7443, and every other port of
// 127.0.0.1 above 999, is replaced by a free port.
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
		if !hasCommands(string(content)) {
			continue
		}
		followed++
		t.Run(filepath.Base(file), func(t *testing.T) {
			t.Parallel()
			followPage(t, string(content), filepath.Dir(programs.annex))
		})
	}
	if followed == 0 {
		t.Error("no page has commands")
	}
}

// TestPrinted is needed because a comparison that accepts everything would pass silently.
func TestPrinted(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		shown, printed string
		want           bool
	}{
		"same":           {"a\nb", "a\nb\n", true},
		"other":          {"a", "b", false},
		"more":           {"a", "a\nb", false},
		"columns":        {"NAME   AGE\na      5s", "NAME                 AGE\na                    2m3s", true},
		"a time":         {"at 2026-01-01T00:00:00Z", "at 2027-11-21T10:11:12.5Z", true},
		"part of a line": {"id-… made", "id-1234 made", true},
		"lines":          {"a\n…\nb", "a\n1\n2\nb", true},
		"special":        {"a.*(", "a.*(", true},
		"nothing":        {"", "a", false},
		"not special":    {"a.*", "abc", false},
	}
	for name, test := range tests {
		if got := (docStep{Output: test.shown, Compared: true}).printed(test.printed); got != test.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
