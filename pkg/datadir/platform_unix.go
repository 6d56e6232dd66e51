// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package datadir

import (
	"errors"
	"io/fs"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// noFollow makes opening a symbolic link fail.
const noFollow = unix.O_NOFOLLOW

// maxSocketPath is the longest path of a unix socket, without the terminating NUL.
const maxSocketPath = len(unix.RawSockaddrUnix{}.Path) - 1

// checkPlatform returns why this platform has no data directories.
func checkPlatform() error { return nil }

// tryLock locks a file, or returns errLocked if another process has locked it.
func tryLock(file *os.File) error {
	err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return errLocked
	}
	return err
}

// isOwn reports whether the file belongs to the user annex runs as.
func isOwn(info fs.FileInfo) bool {
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(stat.Uid) == os.Geteuid()
}
