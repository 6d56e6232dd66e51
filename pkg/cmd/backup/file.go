// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/annex-dev/annex/pkg/datadir"
)

// file is a new file that gets its name once it is complete. Only its owner can read it,
// because it may contain Secrets.
type file struct {
	*os.File
	path string
}

func newFile(path string) (*file, error) {
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		if err == nil {
			err = errors.New("it exists already")
		}
		return nil, fmt.Errorf("write the backup to %s: %w", path, err)
	}
	temporary, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".partial-*") // mode 0600
	if err != nil {
		return nil, fmt.Errorf("write the backup to %s: %w", path, err)
	}
	return &file{File: temporary, path: path}, nil
}

// finish gives the file its name. It does not replace an existing file.
func (f *file) finish() error {
	err := errors.Join(f.Sync(), f.Close())
	if err == nil {
		err = os.Link(f.Name(), f.path)
	}
	if err == nil {
		err = datadir.SyncDir(filepath.Dir(f.path))
	}
	if err != nil {
		return fmt.Errorf("write the backup to %s: %w", f.path, err)
	}
	return nil
}

// discard removes the temporary file, if there is one.
func (f *file) discard() {
	_ = f.Close()
	_ = os.Remove(f.Name())
}
