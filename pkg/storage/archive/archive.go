// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package archive stores objects that are deleted in a folder of the server: as JSON lines,
// compressed with Zstandard, in a folder per resource. Files are only appended to, and only by the
// process that created them.
package archive

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"sync"
	"time"

	"github.com/klauspost/compress/zstd"
	"k8s.io/apimachinery/pkg/util/rand"
)

const (
	// Suffix is the end of the names of files.
	Suffix = ".jsonl.zst"

	dirMode  = 0o700
	fileMode = 0o600

	// maxFileSize and maxFileAge bound a file. Files are removed or copied as a whole.
	maxFileSize = 64 << 20
	maxFileAge  = 24 * time.Hour
)

// Record is a line of a file.
type Record struct {
	// Archived is the time just before the deletion of the object.
	Archived time.Time `json:"archived"`
	// Resource is the name of the HostedResource.
	Resource string `json:"resource"`
	// Rule is the rule that deletes the object.
	Rule string `json:"rule"`
	// Object is the object in the stored version.
	Object json.RawMessage `json:"object"`
}

// Archive writes to a folder.
type Archive struct {
	dir string

	mu      sync.Mutex
	encoder *zstd.Encoder
	current map[string]file
}

// file is the file that the records of a resource are appended to.
type file struct {
	name  string
	size  int64
	since time.Time
}

// New returns an Archive in a folder, which it creates. Only the user of the process can read it.
func New(dir string) (*Archive, error) {
	if err := os.MkdirAll(dir, dirMode); err != nil {
		return nil, fmt.Errorf("create the archive: %w", err)
	}
	info, err := os.Stat(dir)
	if err != nil {
		return nil, fmt.Errorf("open the archive: %w", err)
	}
	if others := info.Mode().Perm() &^ dirMode; others != 0 {
		return nil, fmt.Errorf("open the archive: %s has the mode %#o, which lets other users read it; use %#o", dir, info.Mode().Perm(), dirMode)
	}
	encoder, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1))
	if err != nil {
		return nil, fmt.Errorf("create a compressor: %w", err)
	}
	return &Archive{dir: dir, encoder: encoder, current: map[string]file{}}, nil
}

// Write appends records of a resource, whose name is valid for a HostedResource, to a file. They
// are on disk when it returns without an error.
func (a *Archive) Write(resource string, records []Record) error {
	var lines bytes.Buffer
	for i := range records {
		line, err := json.Marshal(&records[i])
		if err != nil {
			return fmt.Errorf("encode a record: %w", err)
		}
		lines.Write(line)
		lines.WriteByte('\n')
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	root, err := os.OpenRoot(a.dir)
	if err != nil {
		return fmt.Errorf("open the archive: %w", err)
	}
	defer root.Close()
	to, known := a.current[resource]
	// After an error the end of the file is unknown.
	delete(a.current, resource)
	if !known || to.size > maxFileSize || time.Since(to.since) > maxFileAge {
		now := time.Now().UTC()
		to = file{name: path.Join(resource, now.Format("20060102T150405Z")+"-"+rand.String(5)+Suffix), since: now}
		if err := create(root, resource, to.name); err != nil {
			return err
		}
	}
	// A frame is complete, whatever is appended later.
	frame := a.encoder.EncodeAll(lines.Bytes(), nil)
	if err := appendTo(root, to.name, frame); err != nil {
		return err
	}
	to.size += int64(len(frame))
	a.current[resource] = to
	return nil
}

// create creates a file, and makes sure that it is found after a crash.
func create(root *os.Root, folder, name string) error {
	if err := root.Mkdir(folder, dirMode); err != nil && !errors.Is(err, os.ErrExist) {
		return fmt.Errorf("create a folder of the archive: %w", err)
	}
	f, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, fileMode)
	if err != nil {
		return fmt.Errorf("create a file of the archive: %w", err)
	}
	if err := f.Close(); err != nil {
		return fmt.Errorf("create %s: %w", filepath.Join(root.Name(), name), err)
	}
	for _, dir := range []string{folder, "."} {
		if err := syncDir(root, dir); err != nil {
			return err
		}
	}
	return nil
}

func syncDir(root *os.Root, name string) error {
	dir, err := root.Open(name)
	if err != nil {
		return fmt.Errorf("open a folder of the archive: %w", err)
	}
	if err := errors.Join(dir.Sync(), dir.Close()); err != nil {
		return fmt.Errorf("sync folder %s of the archive: %w", name, err)
	}
	return nil
}

func appendTo(root *os.Root, name string, data []byte) error {
	f, err := root.OpenFile(name, os.O_WRONLY|os.O_APPEND, fileMode)
	if err != nil {
		return fmt.Errorf("open a file of the archive: %w", err)
	}
	_, err = f.Write(data)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("write %s: %w", filepath.Join(root.Name(), name), err)
	}
	return nil
}
