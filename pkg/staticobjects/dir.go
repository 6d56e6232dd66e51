// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package staticobjects

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"k8s.io/apiserver/pkg/util/filesystem"
	"k8s.io/klog/v2"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
)

const (
	// A file is read once it has not changed for settlePeriod: it may be written in several
	// parts.
	settlePeriod = 500 * time.Millisecond

	// The other files wait at most maxSettling for one that is being written.
	maxSettling = 5 * time.Second
)

// errWriting is the error of a file that is being written.
var errWriting = errors.New("is being written")

// extensions are the extensions of files with objects.
var extensions = []string{".yaml", ".yml", ".json"}

// Dir is a folder of files with objects.
type Dir struct {
	path     string
	interval time.Duration
	now      func() time.Time

	// files has the files by their names.
	files map[string]*file
	// settling is the time at which files began to be written; zero if none is.
	settling time.Time
}

// file is a file as it was decoded last.
type file struct {
	sum     string
	objects []Object
	err     error
}

// NewDir returns the source of a folder, which is read after each change and at an interval.
func NewDir(path string, interval time.Duration) *Dir {
	return &Dir{path: path, interval: interval, now: time.Now, files: map[string]*file{}}
}

// Name implements Source.
func (d *Dir) Name() string { return hostingv1alpha1.StaticSourceFile }

// Location implements Source.
func (d *Dir) Location() string { return d.path }

// Run implements Source.
func (d *Dir) Run(ctx context.Context, publish func(Snapshot)) {
	changed := make(chan struct{}, 1)
	done := make(chan struct{})
	go func() {
		defer close(done)
		filesystem.WatchUntil(ctx, d.interval, d.path, func() {
			select {
			case changed <- struct{}{}:
			default: // a change waits already
			}
		}, func(err error) {
			// It is read at the interval anyway, which reports that it cannot be.
			klog.FromContext(ctx).V(2).Info("A folder of static objects cannot be watched for now, it is only polled", "folder", d.path, "err", err)
		})
	}()
	defer func() { <-done }()
	for ctx.Err() == nil {
		snapshot, settled := d.read()
		var again <-chan time.Time
		if !settled {
			again = time.After(settlePeriod)
		}
		if settled || d.now().Sub(d.settling) >= maxSettling {
			publish(snapshot)
		}
		select {
		case <-ctx.Done():
		case <-changed:
		case <-again:
		}
	}
}

// read reads the folder. It returns false while a file is being written.
func (d *Dir) read() (snapshot Snapshot, settled bool) {
	entries, err := os.ReadDir(d.path)
	if err != nil {
		// The folder may have been unmounted: its objects stay.
		return d.snapshot(Problem{Reason: "FolderUnreadable", Message: err.Error()}), true
	}
	found := map[string]*file{}
	for _, entry := range entries {
		name := entry.Name()
		if strings.HasPrefix(name, ".") || !slices.Contains(extensions, filepath.Ext(name)) {
			continue
		}
		if f := d.readFile(name); f != nil {
			found[name] = f
		}
	}
	d.files = found
	writing := slices.ContainsFunc(slices.Collect(maps.Values(found)), func(f *file) bool { return errors.Is(f.err, errWriting) })
	switch {
	case !writing:
		d.settling = time.Time{}
	case d.settling.IsZero():
		d.settling = d.now()
	}
	return d.snapshot(), !writing
}

// readFile returns a file with its content, or with the previous one and an error, or nil for
// a folder.
func (d *Dir) readFile(name string) *file {
	path := filepath.Join(d.path, name)
	data, err := d.readSettled(path)
	switch {
	case errors.Is(err, errFolder):
		return nil
	case err == nil:
	case d.files[name] == nil:
		return &file{err: err}
	default:
		return &file{objects: d.files[name].objects, err: err}
	}
	previous, sum := d.files[name], hash(data)
	if previous != nil && previous.sum == sum {
		return previous
	}
	f := &file{sum: sum}
	if f.objects, f.err = Decode(d.Name(), name, data); f.err != nil && previous != nil {
		f.objects = previous.objects
	}
	return f
}

// errFolder is the error of a folder in the folder, which is ignored.
var errFolder = errors.New("is a folder")

// readSettled reads a file that has not been changed for a while, or returns errWriting. A
// file of a mounted ConfigMap is a symbolic link.
func (d *Dir) readSettled(path string) ([]byte, error) {
	before, err := os.Stat(path)
	if err != nil {
		return nil, unnamed(err)
	}
	switch {
	case before.IsDir():
		return nil, errFolder
	case !before.Mode().IsRegular():
		return nil, errors.New("is not a regular file")
	case before.Size() > maxBytes:
		return nil, fmt.Errorf("has %d bytes, at most %d are allowed", before.Size(), maxBytes)
	}
	// The clock of a file server may be ahead: times in the future are not waited for.
	if age := d.now().Sub(before.ModTime()); age >= 0 && age < settlePeriod {
		return nil, errWriting
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, unnamed(err)
	}
	after, err := os.Stat(path)
	if err != nil {
		return nil, unnamed(err)
	}
	if !os.SameFile(before, after) || !after.ModTime().Equal(before.ModTime()) || after.Size() != int64(len(data)) {
		return nil, errWriting
	}
	return bytes.TrimPrefix(data, []byte("\ufeff")), nil
}

// unnamed removes the path from an error, which the origin of the problem has.
func unnamed(err error) error {
	var named *os.PathError
	if errors.As(err, &named) {
		return fmt.Errorf("%s: %w", named.Op, named.Err)
	}
	return err
}

// snapshot returns the files in the order of their names, and these problems.
func (d *Dir) snapshot(problems ...Problem) Snapshot {
	snapshot := Snapshot{Problems: problems}
	for _, name := range slices.Sorted(maps.Keys(d.files)) {
		f := d.files[name]
		snapshot.Objects = append(snapshot.Objects, f.objects...)
		if f.err != nil {
			snapshot.Problems = append(snapshot.Problems, Problem{Origin: name, Reason: "FileUnusable", Message: f.err.Error()})
		}
	}
	snapshot.Complete = len(snapshot.Problems) == 0
	return snapshot
}
