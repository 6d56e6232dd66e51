// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package maincluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"syscall"
	"time"
)

const (
	// stopGrace is the time from SIGTERM to SIGKILL.
	stopGrace = 10 * time.Second
	// tailBytes is the length of a child's log in an error.
	tailBytes = 32 << 10
)

// child is a program that runs until it is stopped or this process exits.
type child struct {
	name    string
	logPath string
	command *exec.Cmd
	exited  chan struct{}
	exitErr error // set before exited is closed
}

// startChild runs a program, and appends its output to NAME.log.
func startChild(dir, name, program string, args []string) (*child, error) {
	c := &child{name: name, logPath: filepath.Join(dir, name+".log"), exited: make(chan struct{})}
	log, err := os.OpenFile(c.logPath, os.O_CREATE|os.O_APPEND|os.O_WRONLY, privateMode)
	if err != nil {
		return nil, fmt.Errorf("open the log of %s: %w", name, err)
	}
	defer log.Close()
	c.command = exec.Command(program, args...) //nolint:noctx // it outlives the call that starts it
	c.command.Dir = dir
	c.command.Stdout, c.command.Stderr = log, log
	c.command.SysProcAttr = dieWithParent()

	started := make(chan error)
	go func() {
		// The kernel kills the child when the thread that started it ends.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer close(c.exited)
		err := c.command.Start()
		started <- err
		if err == nil {
			c.exitErr = c.command.Wait()
		}
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", program, err)
	}
	return c, nil
}

// stop terminates the child and waits for its end; after a grace period it kills it.
func (c *child) stop(ctx context.Context) error {
	if err := c.command.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("stop %s: %w", c.name, err)
	}
	grace := time.NewTimer(stopGrace)
	defer grace.Stop()
	select {
	case <-c.exited:
		return nil
	case <-grace.C:
	case <-ctx.Done():
	}
	c.kill()
	return nil
}

// kill kills the child and waits for its end.
func (c *child) kill() {
	_ = c.command.Process.Kill() // it may have ended already
	<-c.exited
}

// running reports whether the child has not exited.
func (c *child) running() bool {
	select {
	case <-c.exited:
		return false
	default:
		return true
	}
}

// information matches log lines of level info.
var information = regexp.MustCompile(`(?m)^I\d{4} .*\n`)

// tail returns the end of the child's log, without level info.
func (c *child) tail() string {
	content, err := readTail(c.logPath, tailBytes)
	if err != nil {
		return fmt.Sprintf("(the log of %s cannot be read: %v)", c.name, err)
	}
	return fmt.Sprintf("--- end of %s\n%s", c.logPath, information.ReplaceAllString(content, ""))
}

func readTail(path string, limit int64) (string, error) {
	file, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return "", err
	}
	offset := max(info.Size()-limit, 0)
	content, err := io.ReadAll(io.NewSectionReader(file, offset, info.Size()-offset))
	if err != nil {
		return "", err
	}
	text := string(content)
	if _, whole, found := strings.Cut(text, "\n"); found && offset > 0 {
		text = whole
	}
	return text, nil
}
