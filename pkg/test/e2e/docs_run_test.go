// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"github.com/annex-dev/annex/pkg/test/expect"
	"github.com/annex-dev/annex/pkg/test/freeport"
	"github.com/annex-dev/annex/pkg/test/poll"
)

// stepTimeout is generous: a machine that runs tests is busy.
const stepTimeout = 2 * time.Minute

// pageAddresses match the addresses of annex, by default 127.0.0.1:7443, and of etcds.
var pageAddresses = regexp.MustCompile(`127\.0\.0\.1:\d{4,5}\b`)

const annexAddress = "127.0.0.1:7443"

// followPage types the commands of a page in a folder of its own, and fails the test on differences.
// The given folders come first in PATH.
func followPage(t *testing.T, page string, path ...string) {
	t.Helper()
	steps, err := parsePage(page)
	expect.NoError(t, err)
	// The path is short because annex creates sockets below it.
	dir, err := os.MkdirTemp("", "page-")
	expect.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	sh, err := startShell(dir, t.TempDir(), path)
	expect.NoError(t, err)
	t.Cleanup(sh.close)
	r := &reader{shell: sh, addresses: map[string]string{}}
	for _, step := range steps {
		r.follow(t, step)
	}
	r.stop(t)
}

// reader runs the steps of a page.
type reader struct {
	shell *shell
	// addresses maps addresses of the page to free ones.
	addresses map[string]string
	serves    bool
}

// address returns the free address for an address of the page. annex needs the same after a restart, because
// it is in kubeconfigs.
func (r *reader) address(t *testing.T, named string) string {
	t.Helper()
	if r.addresses[named] == "" {
		r.addresses[named] = freeport.ForTest(t)
	}
	return r.addresses[named]
}

func (r *reader) follow(t *testing.T, step docStep) {
	t.Helper()
	free := func(named string) string { return r.address(t, named) }
	step.Text = pageAddresses.ReplaceAllStringFunc(step.Text, free)
	step.Output = pageAddresses.ReplaceAllStringFunc(step.Output, free)
	switch {
	case step.File != "":
		r.write(t, step)
	case step.serves():
		r.stop(t)
		r.serve(t, step)
	case step.reads():
		poll.Until(t, fmt.Sprintf("line %d: %s", step.Line, step.Text), func() string { return r.try(t, step) })
	default:
		if problem := r.try(t, step); problem != "" {
			t.Fatalf("line %d: %s\n%s", step.Line, step.Text, problem)
		}
	}
}

func (r *reader) write(t *testing.T, step docStep) {
	t.Helper()
	file := filepath.Join(r.shell.dir, step.File)
	expect.NoError(t, os.MkdirAll(filepath.Dir(file), 0o700))
	expect.NoError(t, os.WriteFile(file, []byte(step.Text), 0o600))
}

// run types a command and waits for its end.
func (r *reader) run(t *testing.T, text string) (output string, code int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), stepTimeout)
	defer cancel()
	output, code, err := r.shell.run(ctx, text)
	if err != nil {
		t.Fatalf("%v: %s\n%s", err, text, output)
	}
	return output, code
}

// try returns the difference between the output of a step and the page.
func (r *reader) try(t *testing.T, step docStep) (problem string) {
	t.Helper()
	text := step.Text
	if step.startsAnnex() {
		text += " --secure-port=0" // it fails, but perhaps after it listens
	}
	if !step.Compared {
		// Each of its commands must succeed, in the same shell so that variables stay.
		text = "trap 'return 1' ERR\n" + text + "\ntrap - ERR"
	}
	output, code := r.run(t, text)
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
func (r *reader) serve(t *testing.T, step docStep) {
	t.Helper()
	_, port, _ := net.SplitHostPort(r.address(t, annexAddress)) // it was returned by a listener
	out := filepath.Join(r.shell.own, "annex.out")
	// Before the shell truncates it, it contains the ready line of the previous annex.
	if err := os.Remove(out); err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	r.run(t, fmt.Sprintf("%s --secure-port=%s >%s 2>&1 &\nannex_of_the_page=$!", step.Text, port, out))
	r.serves = true
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

// stop stops annex if it runs.
func (r *reader) stop(t *testing.T) {
	t.Helper()
	if !r.serves {
		return
	}
	r.serves = false
	if output, code := r.run(t, "kill -TERM $annex_of_the_page && wait $annex_of_the_page"); code != 0 {
		t.Errorf("annex exited with code %d: %s", code, output)
	}
}
