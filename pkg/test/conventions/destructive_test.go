// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package conventions

import (
	"regexp"
	"strings"
	"testing"
)

// destructive is a command, or a part of one, that loses data or gives up a protection: users copy
// what an error, a condition or a report prints. The pages in docs have such commands, with their
// consequences.
var destructive = regexp.MustCompile(`kubectl [^\n]*\bdelete\b|rm -r|"op":"remove"|finalizers":\s*(null|\[\])|--force\b|--no-backup |--yes-delete=|annotation %s=|--leave-etcd=`)

// harmless are strings that match, by file, and why they may.
var harmless = map[string]string{
	"pkg/cmd/move/migration.go":        "cancel a Migration, which loses nothing, and remove rights that the same command granted",
	"pkg/cmd/move/uninstall_remove.go": "delete annex's manifests, once the main cluster has all objects",
}

// TestNoDestructiveCommands checks the strings of annex.
func TestNoDestructiveCommands(t *testing.T) {
	t.Parallel()
	found := map[string]bool{}
	eachFile(t, func(t *testing.T, file sourceFile) {
		if file.test() || file.generated() || strings.HasPrefix(file.name, "pkg/test/") {
			return
		}
		_, literals := proseOfGo(file.name, file.content)
		for _, literal := range literals {
			match := destructive.FindString(literal.text())
			if match == "" {
				continue
			}
			if found[file.name] = true; harmless[file.name] == "" {
				t.Errorf("%s:%d: %q may be copied: offer a step that loses nothing, and describe this one in docs", file.name, literal.lineAt(1), match)
			}
		}
	})
	for name := range harmless {
		if !found[name] {
			t.Errorf("%s has no such string", name)
		}
	}
}
