// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package archive

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/klauspost/compress/zstd"
)

// maxWindow bounds the memory of a reader. Writers use a smaller window.
const maxWindow = 128 << 20

// DamagedError is the error of files that end early or are corrupt. All that precedes the damage was
// read.
type DamagedError struct{ Files []string }

// Error implements error.
func (e *DamagedError) Error() string {
	return fmt.Sprintf("%d files of the archive are damaged: %s", len(e.Files), strings.Join(e.Files, "; "))
}

// Read calls visit for each record of a resource, or of all resources if it is empty: in the order
// of resources and files, and as written. It returns the first error of visit, and a DamagedError
// after all files have been read.
func Read(dir, resource string, visit func(Record) error) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return fmt.Errorf("open the archive: %w", err)
	}
	defer root.Close()
	resources := []string{resource}
	if resource == "" {
		if resources, err = namesIn(root, "."); err != nil {
			return err
		}
	}
	damaged := &DamagedError{}
	for _, resource := range resources {
		files, err := namesIn(root, resource)
		if errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("the archive has no resource %q: %w", resource, err)
		}
		if err != nil {
			return err
		}
		for _, name := range files {
			if !strings.HasSuffix(name, Suffix) {
				continue
			}
			var damage *damage
			err := readFile(root, path.Join(resource, name), visit)
			if errors.As(err, &damage) {
				damaged.Files = append(damaged.Files, damage.Error())
				continue
			}
			if err != nil {
				return err
			}
		}
	}
	if len(damaged.Files) > 0 {
		return damaged
	}
	return nil
}

// namesIn returns the names in a folder in order. What is no folder has none.
func namesIn(root *os.Root, name string) ([]string, error) {
	dir, err := root.Open(name)
	if err != nil {
		return nil, fmt.Errorf("open a folder of the archive: %w", err)
	}
	defer dir.Close()
	if info, err := dir.Stat(); err == nil && !info.IsDir() {
		return nil, nil
	}
	entries, err := dir.ReadDir(-1)
	if err != nil {
		return nil, fmt.Errorf("read a folder of the archive: %w", err)
	}
	var names []string
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	slices.Sort(names)
	return names, nil
}

// damage is the error of one file.
type damage struct {
	name string
	err  error
}

// Error implements error.
func (d *damage) Error() string { return d.name + ": " + d.err.Error() }

// readFile reads a file until its end, or until it is damaged.
func readFile(root *os.Root, name string, visit func(Record) error) error {
	f, err := root.Open(name)
	if err != nil {
		return fmt.Errorf("open a file of the archive: %w", err)
	}
	defer f.Close()
	decoder, err := zstd.NewReader(f, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(maxWindow))
	if err != nil {
		return fmt.Errorf("read %s: %w", name, err)
	}
	defer decoder.Close()
	lines := bufio.NewReader(decoder)
	for {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) && len(line) == 0 {
			return nil
		}
		if err != nil {
			return &damage{name, err}
		}
		var record Record
		if err := json.Unmarshal(line, &record); err != nil {
			return &damage{name, err}
		}
		if err := visit(record); err != nil {
			return err
		}
	}
}
