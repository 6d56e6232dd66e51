// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package embeddedetcd

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// Disk returns the free and the total bytes of the volume of a folder. Free excludes what the
// file system keeps for root.
func Disk(dir string) (free, size int64, err error) {
	var found unix.Statfs_t
	if err := unix.Statfs(dir, &found); err != nil {
		return 0, 0, fmt.Errorf("read the free space of %s: %w", dir, err)
	}
	block := uint64(found.Bsize)
	return int64(found.Bavail * block), int64(found.Blocks * block), nil
}
