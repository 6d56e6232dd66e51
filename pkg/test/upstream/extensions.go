// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/annex-dev/annex/pkg/test/process"
	annextesting "github.com/annex-dev/annex/pkg/test/upstream/testing"
)

const (
	extensionsModule = "k8s.io/apiextensions-apiserver"
	// startsServer is its package that starts servers for tests, and annexStarts the
	// replacement.
	startsServer = "pkg/cmd/server/testing"
	annexStarts  = "pkg/test/upstream/testing"
)

// runExtensions compiles the tests from a copy of their module.
func runExtensions(ctx context.Context, dir string) ([]outcome, error) {
	root, err := process.ModuleRoot(ctx)
	if err != nil {
		return nil, err
	}
	binary, err := process.Bin(ctx, "annex")
	if err != nil {
		return nil, err
	}
	modfile, err := copyExtensions(ctx, root, dir)
	if err != nil {
		return nil, err
	}
	temp, err := os.MkdirTemp("", "annex-upstream-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(temp)
	log, err := os.Create(filepath.Join(dir, "tests.json"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	command := exec.CommandContext(ctx, "go", "test", "-modfile="+modfile, "-json", "-timeout=1h", extensionsModule+"/test/integration/...")
	command.Dir = root
	command.Env = append(os.Environ(), annextesting.BinaryVariable+"="+binary, "TMPDIR="+temp)
	command.Stdout, command.Stderr = log, os.Stderr
	command.Cancel = func() error { return command.Process.Signal(os.Interrupt) }
	command.WaitDelay = time.Minute
	runErr := command.Run()
	if _, err := log.Seek(0, io.SeekStart); err != nil {
		return nil, err
	}
	attempts, err := readEvents(log)
	if err != nil || len(attempts) == 0 {
		return nil, fmt.Errorf("run the tests, see %s: %w", log.Name(), errors.Join(runErr, err))
	}
	return judge(attempts, extensionsExceptions), ctx.Err()
}

// copyExtensions copies upstream's module to dir, with annex in place of its test
// server, and returns a go.mod that uses it. `go build -overlay` would need no copy, but
// refuses files of the module cache.
func copyExtensions(ctx context.Context, root, dir string) (modfile string, err error) {
	list := exec.CommandContext(ctx, "go", "list", "-m", "-f={{.Dir}}", extensionsModule)
	list.Dir = root
	output, err := list.Output()
	if err != nil {
		return "", fmt.Errorf("find %s in the module cache: %w", extensionsModule, err)
	}
	copied := filepath.Join(dir, "apiextensions-apiserver")
	server := filepath.Join(copied, filepath.FromSlash(startsServer))
	modfile = filepath.Join(dir, "go.mod")
	if err := errors.Join(
		os.CopyFS(copied, os.DirFS(strings.TrimSpace(string(output)))),
		os.RemoveAll(server),
		os.CopyFS(server, os.DirFS(filepath.Join(root, filepath.FromSlash(annexStarts)))),
		copyFile(filepath.Join(root, "go.mod"), modfile),
		copyFile(filepath.Join(root, "go.sum"), filepath.Join(dir, "go.sum")),
	); err != nil {
		return "", fmt.Errorf("copy %s: %w", extensionsModule, err)
	}
	if output, err := exec.CommandContext(ctx, "go", "mod", "edit", "-replace="+extensionsModule+"="+copied, modfile).CombinedOutput(); err != nil {
		return "", fmt.Errorf("write %s: %w: %s", modfile, err, output)
	}
	return modfile, nil
}

func copyFile(from, to string) error {
	content, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, content, 0o600)
}

// readEvents reads the output of `go test -json`. A test with subtests, or a package, counts
// only if it fails and none of its parts does.
func readEvents(events io.Reader) ([]attempt, error) {
	type event struct{ Action, Package, Test, Output string }
	var order []string
	output, states := map[string]string{}, map[string]state{}
	parents, blamed := map[string]bool{}, map[string]bool{}
	for decoder := json.NewDecoder(events); ; {
		var e event
		if err := decoder.Decode(&e); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, fmt.Errorf("decode an event of go test: %w", err)
		}
		name := path.Join(path.Base(e.Package), e.Test)
		switch e.Action {
		case "output", "build-output":
			output[name] += e.Output
		case "pass", "skip", "fail":
			order = append(order, name)
			states[name] = map[string]state{"pass": passed, "skip": skipped, "fail": failed}[e.Action]
			for parent := path.Dir(name); parent != "."; parent = path.Dir(parent) {
				parents[parent] = true
				blamed[parent] = blamed[parent] || e.Action == "fail"
			}
		}
	}
	var attempts []attempt
	for _, name := range order {
		isTest := strings.Contains(name, "/") && !parents[name]
		if isTest || states[name] == failed && !blamed[name] {
			attempts = append(attempts, attempt{test: name, state: states[name], message: output[name]})
		}
	}
	return attempts, nil
}
