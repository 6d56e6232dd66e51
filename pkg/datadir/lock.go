// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package datadir

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// lockTimeout covers the moment in which a killed annex, or a process that it was
// starting, still holds the lock.
const lockTimeout = time.Second

var errLocked = errors.New("locked by another process")

// acquire locks the file, or fails after lockTimeout.
func acquire(path string) (*os.File, error) {
	// noFollow, so that the pid is not written to another file.
	lock, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|noFollow, fileMode)
	if err != nil {
		return nil, fmt.Errorf("open the lock: %w", err)
	}
	if err := flock(lock); err != nil {
		defer lock.Close()
		if errors.Is(err, errLocked) {
			return nil, fmt.Errorf("in use by another annex%s", holder(path))
		}
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	if err := writePID(lock); err != nil {
		return nil, errors.Join(fmt.Errorf("write %s: %w", path, err), lock.Close())
	}
	return lock, nil
}

func flock(lock *os.File) error {
	for deadline := time.Now().Add(lockTimeout); ; time.Sleep(lockTimeout / 100) {
		err := tryLock(lock)
		if !errors.Is(err, errLocked) || time.Now().After(deadline) {
			return err
		}
	}
}

func writePID(lock *os.File) error {
	if err := lock.Truncate(0); err != nil {
		return err
	}
	_, err := lock.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	return err
}

// holder returns " (pid N)", or "" if the holder has not written its pid yet.
func holder(path string) string {
	raw, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(raw)))
	if err != nil {
		return ""
	}
	return fmt.Sprintf(" (pid %d)", pid)
}
