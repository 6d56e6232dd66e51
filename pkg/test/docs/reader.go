// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/annex-dev/annex/pkg/test/expect"
	"github.com/annex-dev/annex/pkg/test/freeport"
	"github.com/annex-dev/annex/pkg/test/poll"
	"github.com/annex-dev/annex/pkg/test/process"
)

// pagePorts match the ports of annex and of etcds.
var pagePorts = regexp.MustCompile(`\b(127\.0\.0\.1|annex-system/annex):(\d{4,5})\b`)

const annexPort = "7443"

// Reader types the commands of pages into one shell.
type Reader struct {
	root  string // of the repository
	shell *shell
	// ports maps ports of the pages to free ones.
	ports map[string]string
	// annex is the step that started annex, which runs.
	annex *step
	// Timeout bounds each step. It is generous: a machine that runs tests is busy, and some commands move a group.
	Timeout time.Duration
}

// NewReader returns a Reader in a folder of its own. The programs in bin come first in PATH. Call Stop at the end.
func NewReader(t *testing.T) *Reader {
	t.Helper()
	root, err := process.ModuleRoot(t.Context())
	expect.NoError(t, err)
	// The path is short because annex creates sockets below it.
	dir, err := os.MkdirTemp("", "page-")
	expect.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	sh, err := startShell(t.Context(), dir, t.TempDir(), filepath.Join(root, "bin"))
	expect.NoError(t, err)
	t.Cleanup(sh.close)
	return &Reader{root: root, shell: sh, ports: map[string]string{}, Timeout: 5 * time.Minute}
}

// Read types the commands of a page, and fails the test at the first difference.
func (r *Reader) Read(t *testing.T, page string) {
	t.Helper()
	steps, err := parsePage(page)
	expect.NoError(t, err)
	for _, step := range steps {
		r.follow(t, step)
	}
}

// Type types a command that is on no page.
func (r *Reader) Type(t *testing.T, command string) {
	t.Helper()
	r.follow(t, step{Text: command})
}

// port returns the free port for one of a page. annex needs the same after a restart, because it is in kubeconfigs.
func (r *Reader) port(t *testing.T, named string) string {
	t.Helper()
	if r.ports[named] == "" {
		_, free, _ := net.SplitHostPort(freeport.ForTest(t)) // it was returned by a listener
		r.ports[named] = free
	}
	return r.ports[named]
}

// here returns the text of a page with the ports and the home of this reader.
func (r *Reader) here(t *testing.T, text string) string {
	t.Helper()
	text = strings.ReplaceAll(text, "/home/me/", r.shell.dir+"/")
	return pagePorts.ReplaceAllStringFunc(text, func(found string) string {
		host, named, _ := strings.Cut(found, ":")
		return host + ":" + r.port(t, named)
	})
}

func (r *Reader) follow(t *testing.T, step step) {
	t.Helper()
	step.Text, step.Output = r.here(t, step.Text), r.here(t, step.Output)
	switch {
	case step.File != "":
		r.write(t, step)
	case step.serves():
		r.Stop(t)
		r.serve(t, step)
	case step.reads():
		poll.Until(t, fmt.Sprintf("line %d: %s", step.Line, step.Text), func() string { return r.try(t, step) })
	default:
		if problem := r.try(t, step); problem != "" {
			t.Fatalf("line %d: %s\n%s", step.Line, step.Text, problem)
		}
	}
}

func (r *Reader) write(t *testing.T, step step) {
	t.Helper()
	file := filepath.Join(r.shell.dir, step.File)
	expect.NoError(t, os.MkdirAll(filepath.Dir(file), 0o700))
	expect.NoError(t, os.WriteFile(file, []byte(step.Text), 0o600))
}

// run types a command and waits for its end.
func (r *Reader) run(t *testing.T, text, answers string) (output string, code int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), r.Timeout)
	defer cancel()
	output, code, err := r.shell.run(ctx, text, answers)
	if err != nil {
		t.Fatalf("%v: %s\n%s", err, text, output)
	}
	return output, code
}

// try returns the difference between the output of a step and the page.
func (r *Reader) try(t *testing.T, step step) (problem string) {
	t.Helper()
	text := step.Text
	if step.startsAnnex() {
		text += " --secure-port=0" // it fails, but perhaps after it listens
	}
	if !step.Compared {
		// Each of its commands must succeed, in the same shell so that variables stay.
		text = "trap 'return 1' ERR\n" + text + "\ntrap - ERR"
	}
	output, code := r.run(t, text, step.answers())
	switch {
	case (code != 0) != step.fails():
		return fmt.Sprintf("exit code %d, printed:\n%s", code, output)
	case !step.printed(output):
		return fmt.Sprintf("printed:\n%s\nthe page shows:\n%s", output, step.Output)
	}
	return ""
}

// readyLine matches the line that annex prints when it is ready.
var readyLine = regexp.MustCompile(`(?m)^annex .* is ready at .*$`)

// serve starts annex and waits until it is ready.
func (r *Reader) serve(t *testing.T, step step) {
	t.Helper()
	out := filepath.Join(r.shell.own, "annex.out")
	// Before the shell truncates it, it contains the ready line of the previous annex.
	if err := os.Remove(out); err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	flag := "--secure-port=" + r.port(t, annexPort)
	if step.runs() {
		flag = "FLAGS=" + flag
		r.Type(t, "make build") // it takes longer than a start
	}
	r.run(t, fmt.Sprintf("%s %s >%s 2>&1 &\nannex_of_the_page=$!", strings.TrimSuffix(step.Text, " &"), flag, out), "")
	r.annex = &step
	var printed string
	poll.Until(t, fmt.Sprintf("line %d: annex is ready", step.Line), func() string {
		content, err := os.ReadFile(out)
		if err != nil || !readyLine.Match(content) {
			return fmt.Sprint(string(content), err)
		}
		printed = string(content)
		return ""
	})
	if step.Output != "" && !step.printed(printed) {
		t.Errorf("line %d: annex printed:\n%s\nthe page shows:\n%s", step.Line, printed, step.Output)
	}
}

// Stop stops annex if it runs.
func (r *Reader) Stop(t *testing.T) {
	t.Helper()
	if r.annex == nil {
		return
	}
	want := 0
	if r.annex.runs() {
		want = 128 + int(syscall.SIGTERM) // of make, which passes the signal on and waits for annex
	}
	r.annex = nil
	if output, code := r.run(t, "kill -TERM $annex_of_the_page && wait $annex_of_the_page", ""); code != want {
		t.Errorf("annex exited with code %d: %s", code, output)
	}
}
