// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
)

// shell is a bash for consecutive commands, which share variables and the working directory.
type shell struct {
	dir      string // its home and start folder
	own      string // for the shell's own files
	command  *exec.Cmd
	input    io.WriteCloser
	statuses *bufio.Scanner
	results  *os.File
}

// startShell starts a shell in dir, until ctx ends or close is called. It inherits only PATH, after the folder bin.
func startShell(ctx context.Context, dir, own, bin string) (*shell, error) {
	results, resultsWriter, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("create a pipe for a shell: %w", err)
	}
	defer resultsWriter.Close()
	command := exec.CommandContext(ctx, "bash", "--noprofile", "--norc")
	command.Dir = dir
	command.Env = []string{
		"HOME=" + dir, "TMPDIR=" + own, "LANG=C.UTF-8", "USER=reader",
		"PATH=" + bin + ":" + os.Getenv("PATH"),
	}
	command.ExtraFiles = []*os.File{resultsWriter}
	// With its process group close also ends background processes.
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	input, err := command.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("create the input of a shell: %w", err)
	}
	if err := command.Start(); err != nil {
		return nil, fmt.Errorf("start a shell: %w", err)
	}
	return &shell{dir: dir, own: own, command: command, input: input, results: results, statuses: bufio.NewScanner(results)}, nil
}

// run types a command and the answers to its questions, and returns its output and exit code. ctx bounds it.
func (s *shell) run(ctx context.Context, text, answers string) (output string, code int, err error) {
	file, script, typed := filepath.Join(s.own, "output"), filepath.Join(s.own, "script"), filepath.Join(s.own, "input")
	for name, content := range map[string]string{script: text + "\n", typed: answers} {
		if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
			return "", 0, fmt.Errorf("write the command: %w", err)
		}
	}
	// Sourced, so that variables stay and no command reads the next one from stdin.
	if _, err := fmt.Fprintf(s.input, ". %s >%s 2>&1 <%s; echo $? >&3\n", script, file, typed); err != nil {
		return "", 0, fmt.Errorf("type into the shell: %w", err)
	}
	done := make(chan string, 1)
	go func() {
		if s.statuses.Scan() {
			done <- s.statuses.Text()
		}
		close(done)
	}()
	var status string
	select {
	case status = <-done:
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	printed, readErr := os.ReadFile(file)
	if err = errors.Join(err, readErr); err != nil {
		return string(printed), 0, fmt.Errorf("run a command: %w", err)
	}
	if code, err = strconv.Atoi(status); err != nil {
		return string(printed), 0, errors.New("the shell has exited")
	}
	return string(printed), code, nil
}

// close kills the shell and its processes.
func (s *shell) close() {
	_ = syscall.Kill(-s.command.Process.Pid, syscall.SIGKILL) // it may have exited
	_ = s.input.Close()
	_ = s.command.Wait() // it was killed
	_ = s.results.Close()
}
