// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package configfile

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/annex-dev/annex/pkg/test/expect"
)

// attempt is recorded by a Watch.
type attempt struct {
	data string
	err  error
}

// watch follows a file that must not contain "broken" and returns what is recorded.
func watch(t *testing.T, path string, poll time.Duration) <-chan attempt {
	t.Helper()
	loaded, err := os.ReadFile(path)
	expect.NoError(t, err)
	recorded := make(chan attempt, 100)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	t.Cleanup(func() { cancel(); <-done })
	go func() {
		defer close(done)
		Watch(ctx, File{
			Path:         path,
			Loaded:       loaded,
			PollInterval: poll,
			Apply: func(_ context.Context, data []byte) error {
				if strings.Contains(string(data), "broken") {
					return errors.New("it is broken")
				}
				return nil
			},
			Record: func(data []byte, err error) { recorded <- attempt{string(data), err} },
		})
	}()
	return recorded
}

// next waits for an attempt with this content. A partial write may be recorded before.
func next(t *testing.T, recorded <-chan attempt, data string) attempt {
	t.Helper()
	var seen []string
	for {
		select {
		case got := <-recorded:
			if got.data == data {
				return got
			}
			seen = append(seen, fmt.Sprintf("%+v", got))
		case <-time.After(time.Minute):
			t.Fatalf("no attempt with %q; seen: %s", data, seen)
		}
	}
}

func write(t *testing.T, path, data string) {
	t.Helper()
	expect.NoError(t, os.WriteFile(path+".new", []byte(data), 0o600))
	expect.NoError(t, os.Rename(path+".new", path))
}

func TestWatch(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "config.yaml")
	write(t, path, "first")
	recorded := watch(t, path, 20*time.Millisecond)

	write(t, path, "second")
	if got := next(t, recorded, "second"); got.err != nil {
		t.Errorf("a good change was refused: %v", got.err)
	}
	write(t, path, "broken")
	if got := next(t, recorded, "broken"); got.err == nil {
		t.Error("a broken change was applied")
	}
	expect.NoError(t, os.Remove(path))
	if got := next(t, recorded, ""); !errors.Is(got.err, os.ErrNotExist) {
		t.Errorf("a file that is gone: %v", got.err)
	}
	// The content in use is recorded again, so that alarms end.
	write(t, path, "second")
	if got := next(t, recorded, "second"); got.err != nil {
		t.Errorf("the content that was in force before was refused: %v", got.err)
	}
}

func TestWatchReportsABrokenFileOnce(t *testing.T) {
	t.Parallel()
	var recorded []error
	w := &watcher{File: File{
		Path:   filepath.Join(t.TempDir(), "config.yaml"),
		Record: func(_ []byte, err error) { recorded = append(recorded, err) },
	}}
	applies, result := 0, errors.New("a file that it names is not there")
	w.Apply = func(context.Context, []byte) error { applies++; return result }

	write(t, w.Path, "x")
	for range 3 {
		w.check(t.Context())
	}
	if applies != 3 || len(recorded) != 1 {
		t.Errorf("applied %d times and recorded %v, want 3 times and recorded once", applies, recorded)
	}
	result = nil
	for range 3 {
		w.check(t.Context())
	}
	if applies != 4 || len(recorded) != 2 || recorded[1] != nil {
		t.Errorf("applied %d times and recorded %v, want once more and a success", applies, recorded)
	}
}

// A mounted ConfigMap changes behind a symlink to a directory.
func TestWatchFollowsSymlinks(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, version := range []string{"1", "2"} {
		expect.NoError(t, os.Mkdir(filepath.Join(dir, version), 0o700))
		write(t, filepath.Join(dir, version, "config.yaml"), "version "+version)
	}
	current, path := filepath.Join(dir, "current"), filepath.Join(dir, "config.yaml")
	expect.NoError(t, errors.Join(os.Symlink("1", current), os.Symlink("current/config.yaml", path)))
	recorded := watch(t, path, 20*time.Millisecond)
	expect.NoError(t, errors.Join(os.Symlink("2", current+".new"), os.Rename(current+".new", current)))
	if got := next(t, recorded, "version 2"); got.err != nil {
		t.Error(got.err)
	}
}

// Without polling: the notification of the file system is enough.
func TestWatchNotification(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "config.yaml")
	write(t, path, "first")
	recorded := watch(t, path, time.Hour)
	for i := range 10 {
		data := fmt.Sprintf("change %d", i)
		expect.NoError(t, os.WriteFile(path, []byte(data), 0o600))
		next(t, recorded, data)
	}
}
