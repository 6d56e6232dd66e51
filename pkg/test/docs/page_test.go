// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package docs

import "testing"

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
		"an answer":      {"a\nContinue? [y/N] y\nb", "a\nContinue? [y/N] b", true},
	}
	for name, test := range tests {
		if got := (step{Output: test.shown, Compared: true}).printed(test.printed); got != test.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
