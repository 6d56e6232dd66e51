// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package staticobjects

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/annex-dev/annex/pkg/controller/framework/controllertest"
	"github.com/annex-dev/annex/pkg/test/expect"
	"github.com/annex-dev/annex/pkg/test/poll"
)

// folder is a folder of static objects, read by hand. Its files are old enough to be read.
type folder struct {
	*Dir
	t *testing.T
}

func newFolder(t *testing.T) *folder {
	t.Helper()
	return &folder{NewDir(t.TempDir(), time.Hour), t}
}

// write writes a file that was last changed a while ago.
func (f *folder) write(name, content string) {
	f.t.Helper()
	path := filepath.Join(f.path, name)
	expect.NoError(f.t, os.MkdirAll(filepath.Dir(path), 0o700))
	expect.NoError(f.t, os.WriteFile(path, []byte(content), 0o600))
	old := time.Now().Add(-time.Minute)
	expect.NoError(f.t, os.Chtimes(path, old, old))
}

// expect reads the folder.
func (f *folder) expect(what, objects string, problems ...string) {
	f.t.Helper()
	snapshot, settled := f.read()
	if !settled {
		f.t.Errorf("%s: a file is being written", what)
	}
	expectSnapshot(f.t, what, snapshot, objects, problems...)
}

func expectSnapshot(t *testing.T, what string, snapshot Snapshot, objects string, problems ...string) {
	t.Helper()
	expect.Equal(t, objects, names(snapshot.Objects), "%s: objects", what)
	if snapshot.Complete != (len(problems) == 0) {
		t.Errorf("%s: complete %t", what, snapshot.Complete)
	}
	var got []string
	for _, p := range snapshot.Problems {
		got = append(got, p.Origin+": "+p.Message)
	}
	if len(got) != len(problems) {
		t.Fatalf("%s: problems %q, want %q", what, got, problems)
	}
	for i, want := range problems {
		if !strings.HasPrefix(got[i], want) {
			t.Errorf("%s: problem %q, want %q", what, got[i], want)
		}
	}
}

const (
	a = "Widget.example.com default/a a.yaml#1"
	b = "Widget.example.com default/b b.json#1"
)

func TestDir(t *testing.T) {
	t.Parallel()
	f := newFolder(t)
	f.expect("empty folder", "")
	f.write("a.yaml", widgetA)
	f.write("b.json", `{"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"namespace": "default", "name": "b"}}`)
	f.write(".hidden.yaml", "}")
	f.write("README.md", "no object")
	f.write("folder.yaml/c.yaml", "}")
	f.expect("two files", a+", "+b)

	f.write("a.yaml", widgetA+"---\napiVersion: v1\nki")
	f.expect("half a file", a+", "+b, "a.yaml: document 2: ")
	f.write("a.yaml", "")
	f.expect("truncated", a+", "+b, "a.yaml: is empty")
	f.write("a.yaml", widgetA)
	f.expect("repaired", a+", "+b)

	expect.NoError(t, os.Remove(filepath.Join(f.path, "b.json")))
	f.expect("removed", a)
	f.write("c.yaml", "}")
	f.expect("never readable", a, "c.yaml: document 1: ")
	expect.NoError(t, os.Rename(f.path, f.path+"-moved"))
	f.expect("vanished", a, ": open "+f.path, "c.yaml: document 1: ")
	expect.NoError(t, os.Rename(f.path+"-moved", f.path))
	expect.NoError(t, os.Remove(filepath.Join(f.path, "c.yaml")))
	f.expect("back", a)
	expect.NoError(t, os.Symlink("missing", filepath.Join(f.path, "d.yaml")))
	f.expect("dangling link", a, "d.yaml: stat: no such file")
}

func TestDirTooLarge(t *testing.T) {
	t.Parallel()
	f := newFolder(t)
	f.write("a.yaml", widgetA)
	expect.NoError(t, os.Truncate(filepath.Join(f.path, "a.yaml"), maxBytes+1))
	f.now = func() time.Time { return time.Now().Add(time.Minute) }
	f.expect("large file", "", "a.yaml: has 33554433 bytes")
}

// A mounted ConfigMap: files are links into a folder that one rename replaces.
func TestDirOfConfigMap(t *testing.T) {
	t.Parallel()
	f := newFolder(t)
	f.write("..first/a.yaml", widgetA)
	expect.NoError(t, os.Symlink("..first", filepath.Join(f.path, "..data")))
	expect.NoError(t, os.Symlink("..data/a.yaml", filepath.Join(f.path, "a.yaml")))
	f.expect("first", a)
	f.write("..second/a.yaml", widgetA+"---"+widgetB)
	expect.NoError(t, os.Symlink("..second", filepath.Join(f.path, "..data_tmp")))
	expect.NoError(t, os.Rename(filepath.Join(f.path, "..data_tmp"), filepath.Join(f.path, "..data")))
	expect.NoError(t, os.RemoveAll(filepath.Join(f.path, "..first")))
	f.expect("second", a+", Widget.example.com default/b a.yaml#2")
}

// A file is read after it has not been changed for a while, the others do not wait for ever.
func TestDirSettles(t *testing.T) {
	t.Parallel()
	f := newFolder(t)
	now := time.Now()
	f.now = func() time.Time { return now }
	touch := func(age time.Duration) {
		at := now.Add(-age)
		expect.NoError(t, os.Chtimes(filepath.Join(f.path, "a.yaml"), at, at))
	}
	f.write("a.yaml", widgetA)
	touch(settlePeriod / 2)
	if snapshot, settled := f.read(); settled || snapshot.Complete {
		t.Errorf("while it is written: settled %t, complete %t", settled, snapshot.Complete)
	}
	expect.Equal(t, now, f.settling, "begin of the wait")
	touch(settlePeriod)
	f.expect("after it was written", a)
	if !f.settling.IsZero() {
		t.Error("it is still waited for")
	}
	touch(-time.Hour)
	f.expect("time in the future", a)
	touch(settlePeriod / 2)
	snapshot, _ := f.read()
	expectSnapshot(t, "written again", snapshot, a, "a.yaml: is being written")
}

// published has the last snapshot of a source that runs.
type published struct {
	mu   sync.Mutex
	last Snapshot
}

func (p *published) set(snapshot Snapshot) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last = snapshot
}

func (p *published) wait(t *testing.T, what, objects string, complete bool) {
	t.Helper()
	poll.Until(t, what, func() string {
		p.mu.Lock()
		defer p.mu.Unlock()
		if got := names(p.last.Objects); got != objects || p.last.Complete != complete {
			return fmt.Sprintf("%q, problems %v", got, p.last.Problems)
		}
		return ""
	})
}

func run(t *testing.T, source Source) *published {
	t.Helper()
	p := &published{}
	controllertest.Start(t, func(ctx context.Context) { source.Run(ctx, p.set) })
	return p
}

func TestDirRun(t *testing.T) {
	t.Parallel()
	f := newFolder(t)
	p := run(t, f.Dir)
	p.wait(t, "empty", "", true)
	expect.NoError(t, os.WriteFile(filepath.Join(f.path, "a.yaml"), []byte(widgetA), 0o600))
	p.wait(t, "a new file, without the interval", a, true)
	expect.NoError(t, os.Remove(filepath.Join(f.path, "a.yaml")))
	p.wait(t, "removed", "", true)
}

func TestDirRunWithoutFolder(t *testing.T) {
	t.Parallel()
	f := newFolder(t)
	f.interval = 10 * time.Millisecond
	f.path = filepath.Join(f.path, "later")
	p := run(t, f.Dir)
	poll.Until(t, "the folder is missing", func() string {
		p.mu.Lock()
		defer p.mu.Unlock()
		if len(p.last.Problems) == 0 {
			return "no problem"
		}
		return expect.Missing(p.last.Problems[0].Message, "no such file")
	})
	f2 := &folder{f.Dir, t}
	f2.write("a.yaml", widgetA)
	p.wait(t, "the folder was created", a, true)
}
