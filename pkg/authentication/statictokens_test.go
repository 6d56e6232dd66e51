// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package authentication

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/annex-dev/annex/pkg/test/expect"
)

func TestStaticTokens(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "tokens.csv")
	writeConfig(t, path, "secret-1,alice,1,\"a,b\"\nsecret-2,bob,2\n\nsecret-3,carol,,\"\"\n")
	tokens, err := LoadStaticTokens(path)
	expect.NoError(t, err)
	for token, want := range map[string]string{
		"secret-1": "alice [a b] uid 1", "secret-2": "bob [] uid 2", "secret-3": "carol []", "secret-4": "no user", "": "no user",
	} {
		if got := askFor(t, tokens, token); got != want {
			t.Errorf("%q is of %s, want %s", token, got, want)
		}
	}
}

func TestStaticTokensRefused(t *testing.T) {
	t.Parallel()
	const good = "secret-1,alice,1\n"
	for name, test := range map[string]struct{ content, want string }{
		"only a token":     {good + "secret-2\n", "FILE:2: must have at least a token, a user and a user id, has 1 columns"},
		"no token":         {good + ",bob,2\n", "FILE:2: token: must not be empty"},
		"no user":          {good + "secret-2,,2\n", "FILE:2: user: must not be empty"},
		"a token of two":   {good + "secret-1,bob,2\n", `FILE:2: token: is that of user "alice" too`},
		"groups unquoted":  {good + "secret-2,bob,2,a,b\n", "FILE:2: groups: several groups must be in quotes"},
		"quotes that open": {good + "secret-2,bob,2,\"a,b\n", "FILE:2: "},
		"two faults":       {"secret-1\n" + good + ",bob,2\n", "FILE:3: token"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "tokens.csv")
			writeConfig(t, path, test.content)
			_, err := LoadStaticTokens(path)
			if err == nil {
				t.Fatal("it is accepted")
			}
			if want := strings.ReplaceAll(test.want, "FILE", path); !strings.Contains(err.Error(), want) {
				t.Errorf("error does not contain %q: %v", want, err)
			}
			if strings.Contains(err.Error(), "secret") {
				t.Errorf("error has a token: %v", err)
			}
		})
	}
	if _, err := LoadStaticTokens("/no/tokens.csv"); err == nil || !strings.Contains(err.Error(), "/no/tokens.csv") {
		t.Errorf("a file that is not there: %v", err)
	}
}
