// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package move

import (
	"context"
	"errors"
	"fmt"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/annex-dev/annex/pkg/storage/etcd/keys"
	"github.com/annex-dev/annex/pkg/storage/layer/revision"
	"github.com/annex-dev/annex/pkg/test/expect"
	"github.com/annex-dev/annex/pkg/test/poll"
)

// TestCopyAndFollow copies while objects change, and follows.
func TestCopyAndFollow(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.fill(250)
	put(t, f.config.From, "ns/0100", "second")
	remove(t, f.config.From, "ns/0050")
	dictionaries := 0
	f.config.CopyDictionaries = func(context.Context) error { dictionaries++; return nil }
	changed := false
	f.config.Report = func(p Progress) {
		if p.Copied > 20 && p.Copied < 200 && !changed { // before and behind the cursor
			changed = true
			put(t, f.config.From, "ns/0001", "changed")
			put(t, f.config.From, "ns/0240", "changed")
			remove(t, f.config.From, "ns/0002")
			remove(t, f.config.From, "ns/0241")
			put(t, f.config.From, "ns/0000a", "new")
			put(t, f.config.From, "ns/9999", "new")
		}
	}
	m := New(f.config)
	f.wantState(m, Absent)
	expect.NoError(t, m.Check(f.ctx))
	expect.NoError(t, m.Copy(f.ctx))
	f.wantState(m, Following)
	if dictionaries != 1 || !changed {
		t.Errorf("dictionaries were copied %d times, objects changed: %v", dictionaries, changed)
	}
	if state, err := revision.LoadState(f.ctx, f.to.KV, "/two", widgets); err != nil || !state.Closed || state.ClosedFor != "hosted" {
		t.Errorf("the target is %+v (%v), want closed", state, err)
	}

	ctx, stop := context.WithCancel(f.ctx)
	caughtUp, followed := make(chan struct{}), make(chan error, 1)
	go func() { followed <- m.Follow(ctx, func() { close(caughtUp) }) }()
	<-caughtUp
	f.wantEqual()
	for i := range 200 {
		put(t, f.config.From, fmt.Sprintf("ns/%04d", 3*i), fmt.Sprintf("third %d", i))
		if i%3 == 0 {
			remove(t, f.config.From, fmt.Sprintf("ns/%04d", i))
		}
	}
	want := objects(t, f.config.From)
	poll.UntilDone(t, "the target has all changes", func() (bool, string) {
		got := objects(t, f.config.To)
		return fmt.Sprint(got) == fmt.Sprint(want), fmt.Sprintf("%d of %d objects", len(got), len(want))
	})
	stop()
	expect.NoError(t, <-followed)
}

// TestCountedOnce ends a copy in the middle of a page: no object counts twice.
func TestCountedOnce(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.fill(250)
	ctx, kill := context.WithCancel(f.ctx)
	defer kill()
	var last Progress
	f.config.Report = func(p Progress) {
		if last = p; p.Copied > 200 {
			kill()
		}
	}
	wantError(t, New(f.config).Copy(ctx), context.Canceled)
	if last.Copied >= 248 {
		t.Fatalf("a batch ends with %d objects, as the page", last.Copied)
	}
	expect.NoError(t, New(f.config).Copy(f.ctx))
	expect.Equal(t, int64(250), last.Copied)
}

// catchUp follows until the target has all.
func (f *fixture) catchUp() {
	f.Helper()
	ctx, stop := context.WithCancel(f.ctx)
	defer stop()
	expect.NoError(f, New(f.config).Follow(ctx, stop))
}

// TestFenced: a Mover that was replaced writes nothing more.
func TestFenced(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.fill(10)
	old := New(f.config)
	expect.NoError(t, old.Copy(f.ctx))
	caughtUp, followed := make(chan struct{}), make(chan error, 1)
	go func() { followed <- old.Follow(f.ctx, func() { close(caughtUp) }) }()
	<-caughtUp
	expect.NoError(t, New(f.config).Copy(f.ctx))
	put(t, f.config.From, "ns/x", "x")
	wantError(t, <-followed, ErrFenced, "the Mover that was replaced")
	f.catchUp()
	f.wantEqual()
}

// TestCompacted compacts what a Mover has not seen yet.
func TestCompacted(t *testing.T) {
	t.Parallel()
	for name, part := range map[string]bool{"during the copy": true, "after it": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			f.fill(100)
			ctx, kill := context.WithCancel(f.ctx)
			defer kill()
			if part {
				f.config.Report = func(Progress) { kill() }
			}
			if err := New(f.config).Copy(ctx); (err != nil) != part {
				t.Fatal(err)
			}
			f.config.Report = nil
			f.compactChanges()
			if part {
				expect.NoError(t, New(f.config).Copy(f.ctx))
			}
			f.catchUp()
			f.wantEqual()
		})
	}
}

// compactChanges changes objects, and compacts the changes.
func (f *fixture) compactChanges() {
	f.Helper()
	for i := range 30 {
		put(f, f.config.From, fmt.Sprintf("ns/%04d", i), "second")
		remove(f, f.config.From, fmt.Sprintf("ns/%04d", 50+i))
	}
	put(f, f.config.From, "ns/new", "new")
	now, err := f.from.KV.Get(f.ctx, "x")
	expect.NoError(f, err)
	_, err = f.from.Compact(f.ctx, now.Header.Revision, clientv3.WithCompactPhysical())
	expect.NoError(f, err)
}

func TestRefused(t *testing.T) {
	t.Parallel()
	freeze := func(f *importFixture, e End) {
		_, err := e.KV.Put(f.ctx, keys.Frozen(e.Prefix, widgets), "another")
		expect.NoError(f, err)
	}
	for name, tc := range map[string]struct {
		prepare       func(*importFixture)
		move, imports string // the reasons
	}{
		"target not empty": {func(f *importFixture) { put(f, f.config.To, "ns/x", "x") }, ReasonNotEmpty, ReasonNotEmpty},
		"another move": {func(f *importFixture) {
			other := f.config
			other.UID = "other"
			expect.NoError(f, New(other).Copy(f.ctx))
		}, ReasonMoving, ReasonMoving},
		"frozen source": {func(f *importFixture) { freeze(f, f.config.From) }, ReasonFrozen, ""},
		"frozen target": {func(f *importFixture) { freeze(f, f.config.To) }, ReasonFrozen, ReasonFrozen},
		"unreadable object": {func(f *importFixture) {
			_, err := f.from.Put(f.ctx, "/one/example.com/widgets/ns/bad", "bad")
			expect.NoError(f, err)
		}, ReasonUnreadable, ReasonUnreadable},
	} {
		for kind, want := range map[string]string{"move": tc.move, "import": tc.imports} {
			t.Run(name+"/"+kind, func(t *testing.T) {
				t.Parallel()
				f := newImportFixture(t)
				f.fill(3)
				tc.prepare(f)
				var m interface {
					Check(context.Context) error
					Copy(context.Context) error
				} = New(f.config)
				if kind == "import" {
					m = NewImporter(f.config)
				}
				checked := m.Check(f.ctx)
				if want == ReasonUnreadable { // which no check reads
					expect.NoError(t, checked)
					checked = m.Copy(f.ctx)
				}
				for _, err := range []error{checked, m.Copy(f.ctx)} {
					refusal, refused := errors.AsType[*Refusal](err)
					if refused != (want != "") || refused && refusal.Reason != want {
						t.Errorf("error %v, want the reason %q", err, want)
					}
				}
			})
		}
	}
}
