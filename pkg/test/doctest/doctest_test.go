// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package doctest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/annex-dev/annex/pkg/test/expect"
)

const example = "# Page\n\nWrite `notes.md` or rather `a.yaml`, mode 0600:\n\n```yaml\na: 1\n```\n\n" +
	"No file:\n\n```yaml\nb: 2\n```\n\n    indented\n\n```sh\nexport A=$(cat a.yaml)\ncd /\n```\n\nThen:\n\n" +
	"```console\n$ echo \"$A\" \\\n> $PWD\na: 1 /\n$ cat <<EOF\n$ not a command\nEOF\n$ not a …\n$ false; echo error: no\nerror: no\n```\n"

func TestParse(t *testing.T) {
	t.Parallel()
	got, err := Parse(example)
	expect.NoError(t, err)
	want := []Step{
		{Line: 6, File: "a.yaml", Text: "a: 1\n"},
		{Line: 18, Text: "export A=$(cat a.yaml)\ncd /"},
		{Line: 25, Text: "echo \"$A\" \\\n$PWD", Output: "a: 1 /", Compared: true},
		{Line: 28, Text: "cat <<EOF\n$ not a command\nEOF", Compared: true},
		{Line: 31, Text: "not a …", Compared: true},
		{Line: 32, Text: "false; echo error: no", Output: "error: no", Compared: true},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for _, broken := range []string{"```sh\n", "```console\nls\n```\n"} {
		if _, err := Parse(broken); err == nil || !strings.Contains(err.Error(), "line ") {
			t.Errorf("%q: %v", broken, err)
		}
	}
}

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
		if got := (Step{Output: test.shown, Compared: true}).Printed(test.printed); got != test.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

// TestRun follows a page with a program that behaves as annex does.
func TestRun(t *testing.T) {
	t.Parallel()
	bin := t.TempDir()
	const annex = `#!/bin/bash
[ "$1" = serve ] || exit 1
echo "$@" >>"$HOME/starts"
trap 'echo stopped >>"$HOME/starts"; exit 0' TERM
last=${@: -1}
echo "annex v1 is ready at https://127.0.0.1:${last#*=}, use it with: export KUBECONFIG=x"
while :; do sleep 0.01; done
`
	expect.NoError(t, os.WriteFile(filepath.Join(bin, "annex"), []byte(annex), 0o700))
	Run(t, "Put `dir/f.txt`:\n\n```text\nhello\n```\n\n"+
		"```console\n$ annex serve --flag \\\n> --other\nannex … is ready at https://127.0.0.1:7443, use it with: …\n```\n\n"+
		"```sh\nexport GREETING=$(cat dir/f.txt)\n(sleep 0.2; touch later) &\n```\n\n"+
		"```console\n$ echo $GREETING from $HOME | grep -c $PWD\n1\n$ ls later\nlater\n"+
		"$ ls /nowhere || { echo error: not there; false; }\n…\nerror: not there\n```\n\n"+
		"Again:\n\n```sh\nannex serve --again\n```\n\n```console\n$ cat starts\nserve --flag --other --secure-port=…\nstopped\nserve --again --secure-port=…\n```\n", bin)
}
