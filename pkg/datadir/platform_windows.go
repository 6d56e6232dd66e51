// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package datadir

import (
	"errors"
	"io/fs"
	"os"
)

// Windows has the commands for a cluster only: permissions there would not keep other users from the keys in a data
// directory.
var errPlatform = errors.New("annex keeps no data on Windows")

const (
	noFollow      = 0
	maxSocketPath = 0
)

func checkPlatform() error { return errPlatform }

func tryLock(*os.File) error { return errPlatform }

func isOwn(fs.FileInfo) bool { return false }
