// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package archive

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/annex-dev/annex/pkg/storage/archive"
	"github.com/annex-dev/annex/pkg/test/expect"
)

// newArchive has objects of two resources, archived one, two and three hours ago.
func newArchive(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "archive")
	a, err := archive.New(dir)
	expect.NoError(t, err)
	for i, object := range []string{"widgets team first red", "widgets team second blue", "gadgets other first red"} {
		of := strings.Fields(object)
		resource := of[0] + ".example.com"
		expect.NoError(t, a.Write(resource, []archive.Record{{
			Archived: time.Now().Add(-time.Duration(i+1) * time.Hour), Resource: resource, Rule: "old",
			Object: json.RawMessage(fmt.Sprintf(`{"metadata":{"namespace":%q,"name":%q,"labels":{"color":%q}}}`, of[1], of[2], of[3])),
		}}))
	}
	return dir
}

func run(args ...string) (string, error) {
	var out bytes.Buffer
	cmd := NewCommand(&out)
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	cmd.SetOut(&out)
	cmd.SetArgs(append([]string{}, args...)) // nil would be the arguments of the test
	err := cmd.Execute()
	return out.String(), err
}

func TestSelection(t *testing.T) {
	t.Parallel()
	dir := newArchive(t)
	const first, second, gadget = "widgets team first", "widgets team second", "gadgets other first"
	tests := map[string]struct {
		flags []string
		want  []string
	}{
		"all":         {nil, []string{gadget, first, second}},
		"resource":    {[]string{"--resource=widgets.example.com"}, []string{first, second}},
		"namespace":   {[]string{"-n", "other"}, []string{gadget}},
		"name":        {[]string{"--name=first"}, []string{gadget, first}},
		"label":       {[]string{"-l", "color=blue"}, []string{second}},
		"since":       {[]string{"--since=90m"}, []string{first}},
		"until":       {[]string{"--until=90m"}, []string{gadget, second}},
		"time":        {[]string{"--since=" + time.Now().Add(-150*time.Minute).Format(time.RFC3339), "--until=90m"}, []string{second}},
		"none":        {[]string{"--name=third"}, nil},
		"combination": {[]string{"--name=first", "-l", "color=red", "-n", "team"}, []string{first}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			flags := slices.Concat(test.flags, []string{"--archive-dir=" + dir})
			cat, err := run(append([]string{"cat"}, flags...)...)
			expect.NoError(t, err)
			search, err := run(append([]string{"search", "-owide"}, flags...)...)
			expect.NoError(t, err)
			objects, rows := strings.Split(cat, "\n"), strings.Split(search, "\n")[1:]
			if len(objects) != len(test.want)+1 || len(rows) != len(test.want)+1 {
				t.Fatalf("cat:\n%s\nsearch:\n%s\nwant %q", cat, search, test.want)
			}
			for i, want := range test.want {
				of := strings.Fields(want)
				if !strings.Contains(objects[i], fmt.Sprintf(`"namespace":%q,"name":%q`, of[1], of[2])) {
					t.Errorf("object %d is %s, want %s", i, objects[i], want)
				}
				if row := strings.Join(strings.Fields(rows[i])[1:], " "); !strings.HasPrefix(row, fmt.Sprintf("%s.example.com %s %s old", of[0], of[1], of[2])) {
					t.Errorf("row %d is %s, want %s", i, row, want)
				}
			}
		})
	}
}

// TestFitTerminal has ordinary names.
func TestFitTerminal(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	object := found{time.Now().Add(-191 * time.Hour), "runs.certificates.example.corp", "team-payments", "build-2048-x7k2p", "finished", "2c1b0a4e-4d4b-4c1e-9a50-0b9d3c5e7a11"}
	expect.NoError(t, printFound(&out, []found{object}, false))
	expect.FitsTerminal(t, out.String())
}

func TestErrors(t *testing.T) {
	t.Parallel()
	dir := newArchive(t)
	damaged := newArchive(t)
	files, err := filepath.Glob(filepath.Join(damaged, "widgets.example.com", "*"))
	expect.NoError(t, err)
	expect.NoError(t, os.Truncate(files[0], 20))
	for name, test := range map[string]struct {
		flags []string
		want  string
	}{
		"no folder":        {nil, "--archive-dir is required"},
		"unknown folder":   {[]string{"--archive-dir=" + dir + "/none"}, "open the archive"},
		"unknown resource": {[]string{"--archive-dir=" + dir, "--resource=others.example.com"}, `the archive has no resource "others.example.com"`},
		"path":             {[]string{"--archive-dir=" + dir, "--resource=../archive"}, "path escapes"},
		"bad selector":     {[]string{"--archive-dir=" + dir, "-l", "a=b=c"}, "--selector"},
		"bad time":         {[]string{"--archive-dir=" + dir, "--since=yesterday"}, `--since: "yesterday" is neither a time in RFC 3339 nor a duration`},
		"damaged":          {[]string{"--archive-dir=" + damaged}, "1 files of the archive are damaged: widgets.example.com/"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, command := range []string{"cat", "search"} {
				if _, err := run(append([]string{command}, test.flags...)...); err == nil || !strings.Contains(err.Error(), test.want) {
					t.Errorf("%s: the error is %v, want %q", command, err, test.want)
				}
			}
		})
	}
}
