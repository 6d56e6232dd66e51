// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package move

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/errgroup"

	"github.com/annex-dev/annex/pkg/storage/etcd/etcdkv"
	"github.com/annex-dev/annex/pkg/storage/etcd/keys"
	"github.com/annex-dev/annex/pkg/test/expect"
	"github.com/annex-dev/annex/pkg/test/poll"
)

// source is an etcd whose watches can be lost.
type source struct {
	end
	watches atomic.Int64
	last    atomic.Pointer[context.CancelFunc]
	// dead is set when it no longer responds.
	dead atomic.Bool
	// stalled is locked while watches deliver nothing, and progressRequests counts requests for their progress.
	stalled          sync.Mutex
	progressRequests atomic.Int64
	// pages counts those that were read.
	pages atomic.Int64
	// holding, if set, is closed when Revision is called, which does not return before its context is done.
	holding atomic.Pointer[chan struct{}]
}

func (s *source) Revision(ctx context.Context) (int64, error) {
	if holding := s.holding.Load(); holding != nil {
		close(*holding)
		<-ctx.Done()
		return 0, ctx.Err()
	}
	return s.end.Revision(ctx)
}

func (s *source) Page(ctx context.Context, after string, limit, revision int64) ([]Object, bool, error) {
	s.pages.Add(1)
	return s.end.Page(ctx, after, limit, revision)
}

func (s *source) Watch(ctx context.Context, after int64) (Watch, error) {
	s.watches.Add(1)
	ctx, cancel := context.WithCancel(ctx)
	s.last.Store(&cancel)
	w, err := s.end.Watch(ctx, after)
	if err != nil {
		return nil, err
	}
	events := etcdkv.Watch(ctx, func(send func(Events) bool) {
		for e := range w.Events() {
			s.stalled.Lock()
			s.stalled.Unlock() //nolint:staticcheck // it only waits
			if !send(e) {
				return
			}
		}
	})
	return watchOf{w, s, events, ctx.Done()}, nil
}

// watchOf is a watch of a source that may be dead, or stalled.
type watchOf struct {
	Watch
	source *source
	events <-chan Events
	lost   <-chan struct{}
}

func (w watchOf) Events() <-chan Events { return w.events }

func (w watchOf) RequestProgress(ctx context.Context, wanted int64) error {
	w.source.progressRequests.Add(1)
	if err := w.Watch.RequestProgress(ctx, wanted); err != nil && !isClosed(w.lost) {
		return err
	}
	return nil
}

func (w watchOf) CheckAlive(context.Context) error {
	if w.source.dead.Load() {
		return errors.New("no response")
	}
	return nil
}

func (w watchOf) UntilDead(ctx context.Context, measured func()) error {
	for {
		if err := w.CheckAlive(ctx); err != nil {
			return err
		}
		measured()
		if err := pause(ctx, 10*time.Millisecond); err != nil {
			return err
		}
	}
}

// lose ends the last watch.
func (s *source) lose() { (*s.last.Load())() }

// importFixture is a fixture whose source is not a Store.
type importFixture struct {
	*fixture
	source *source
	follow FollowOptions

	caughtUp, proven, switched, opened chan struct{}
}

func newImportFixture(t *testing.T) *importFixture {
	t.Helper()
	f := &importFixture{fixture: newFixture(t)}
	f.source = &source{end: newEnd(f.config.From, widgets, "unused")}
	f.config.UID, f.config.Source = "import", f.source
	f.prepare()
	return f
}

// prepare prepares another call of Follow.
func (f *importFixture) prepare() {
	f.caughtUp, f.proven, f.switched, f.opened = make(chan struct{}), make(chan struct{}), make(chan struct{}), make(chan struct{})
	f.follow = FollowOptions{
		CaughtUp: func() { close(f.caughtUp) }, Proven: func() { close(f.proven) }, Opened: func() { close(f.opened) }, Switch: f.switched,
		Quiet: 200 * time.Millisecond, Lowest: f.source.Revision,
	}
}

// start follows, and returns the result.
func (f *importFixture) start(i *Importer) <-chan error {
	result := make(chan error, 1)
	go func() { result <- i.Follow(f.ctx, f.follow) }()
	return result
}

// startCopied copies, and follows until it has caught up.
func (f *importFixture) startCopied() (*Importer, <-chan error) {
	f.Helper()
	i := NewImporter(f.config)
	expect.NoError(f, i.Copy(f.ctx))
	result := f.start(i)
	f.wait(result, f.caughtUp)
	return i, result
}

// wait waits for a step of what follows.
func (f *importFixture) wait(result <-chan error, step <-chan struct{}) {
	f.Helper()
	select {
	case <-step:
	case err := <-result:
		f.Fatalf("what follows has ended: %v", err)
	}
}

// untilCopied waits until the target has an object.
func (f *importFixture) untilCopied(name, want string) {
	f.Helper()
	poll.UntilDone(f, name+" is copied", func() (bool, string) {
		got := objects(f, f.config.To)[name]
		return got == want, got
	})
}

// wantLost waits until following ends because the watch was lost after the switch.
func (f *importFixture) wantLost(i *Importer, result <-chan error, want State) {
	f.Helper()
	wantError(f, <-result, ErrWatchLost)
	f.wantState(i, want)
}

// TestImport copies while objects change, is killed again and again, verifies and switches.
func TestImport(t *testing.T) {
	t.Parallel()
	f := newImportFixture(t)
	f.fill(300)
	f.wantState(NewImporter(f.config), Absent)
	for attempt := 0; ; attempt++ {
		ctx, kill := context.WithCancel(f.ctx)
		reports := 0
		f.config.Report = func(Progress) {
			put(t, f.config.From, fmt.Sprintf("ns/%04d", 7*attempt%300), fmt.Sprintf("attempt %d", attempt))
			remove(t, f.config.From, fmt.Sprintf("ns/%04d", 11*attempt%300))
			if reports++; reports > 1 {
				kill()
			}
		}
		i := NewImporter(f.config)
		expect.NoError(t, i.Check(f.ctx))
		err := i.Copy(ctx)
		kill()
		if err == nil {
			break
		}
		if !errors.Is(err, context.Canceled) || attempt > 1000 {
			t.Fatalf("attempt %d: %v", attempt, err)
		}
		f.wantState(i, Copying)
	}
	f.config.Report = nil
	i := NewImporter(f.config)
	f.wantState(i, Following)
	ctx, end := context.WithCancel(f.ctx)
	f.ctx, f.follow.Settle = ctx, time.Hour
	result := f.start(i)
	f.wait(result, f.caughtUp)
	f.wantEqual()
	expect.NoError(t, i.Verify(f.ctx))
	f.source.lose()
	put(t, f.config.From, "ns/after", "the watch was lost")
	f.untilCopied("ns/after", "the watch was lost")
	close(f.switched)
	put(t, f.config.From, "ns/later", "the switch")
	f.wait(result, f.opened)
	f.wantEqual()
	f.wantState(i, Switched)
	state := f.state(f.config.To)
	now, err := f.source.Revision(f.ctx)
	expect.NoError(t, err)
	if first := state.ModRevision + state.Offset; state.Closed || first <= now || first > now+2*importGap {
		t.Errorf("resource versions begin at %d, want a little more than %d; %+v", first, now, state)
	}
	put(t, f.config.From, "ns/late", "late")
	f.untilCopied("ns/late", "late")
	end()
	expect.NoError(t, <-result, "it has ended while it settled")
	for what, err := range map[string]error{"canceled": i.Cancel(t.Context()), "copied": i.Copy(t.Context()), "followed": i.Follow(t.Context(), f.follow)} {
		if !errors.Is(err, ErrSwitched) {
			t.Errorf("it can be %s: %v", what, err)
		}
	}
}

// TestVersionsOfObjects writes to the target's etcd between the copy and the switch, more than the gap of resource
// versions. Copied objects have higher ones than in the source nevertheless.
func TestVersionsOfObjects(t *testing.T) {
	t.Parallel()
	f := newImportFixture(t)
	f.fill(3)
	const lowest = 1_000_000
	f.follow.Lowest = func(context.Context) (int64, error) { return lowest, nil }
	_, result := f.startCopied()
	writing, ctx := errgroup.WithContext(f.ctx)
	for range 16 {
		writing.Go(func() error {
			for range importGap / 10 {
				if _, err := f.to.Put(ctx, "/other", ""); err != nil {
					return err
				}
			}
			return nil
		})
	}
	expect.NoError(t, writing.Wait())
	put(t, f.config.From, "ns/later", "the last change")
	f.untilCopied("ns/later", "the last change")
	close(f.switched)
	f.wait(result, f.opened)
	expect.NoError(t, <-result)
	offset := f.state(f.config.To).Offset
	copied, err := f.to.KV.Get(f.ctx, keys.Objects(f.config.To.Prefix, widgets), clientv3.WithPrefix(), clientv3.WithKeysOnly())
	expect.NoError(t, err)
	expect.Equal(t, 4, len(copied.Kvs), "copied objects")
	for _, kv := range copied.Kvs {
		if version := kv.ModRevision + offset; version <= lowest {
			t.Errorf("the resource version of %s is %d, that of the main cluster is %d", kv.Key, version, lowest)
		}
	}
}

// TestLateChanges changes objects at the source after the target was opened. Clients have written some of
// them there.
func TestLateChanges(t *testing.T) {
	t.Parallel()
	f := newImportFixture(t)
	from, to := f.config.From, f.config.To
	for _, name := range []string{"deleted", "deleted-here", "kept", "recreated", "twice", "updated", "written", "written-deleted"} {
		put(t, from, "ns/"+name, "first")
	}
	i := NewImporter(f.config)
	expect.NoError(t, i.Copy(f.ctx))
	opened := f.follow.Opened
	f.follow.Opened = func() {
		for _, name := range []string{"born-twice", "written", "written-deleted"} {
			put(t, to, "ns/"+name, "by a client")
		}
		for _, name := range []string{"deleted-here", "deleted-too", "recreated"} {
			remove(t, to, "ns/"+name)
		}
		for _, name := range []string{"born", "born", "born-twice", "deleted-here", "twice", "twice", "updated", "written"} {
			put(t, from, "ns/"+name, "late")
		}
		for _, name := range []string{"deleted", "recreated", "written-deleted"} {
			remove(t, from, "ns/"+name)
		}
		put(t, from, "ns/recreated", "late")
		put(t, from, "ns/recreated", "later")
		opened()
	}
	f.follow.Settle = time.Hour
	ctx, end := context.WithCancel(f.ctx)
	f.ctx = ctx
	result := f.start(i)
	f.wait(result, f.caughtUp)
	close(f.switched)
	f.untilCopied("ns/recreated", "later")
	end()
	err := <-result
	failed, _ := errors.AsType[*LateError](err)
	if failed == nil {
		t.Fatalf("error %v", err)
	}
	expect.Equal(t, &LateError{[]string{"ns/born-twice", "ns/deleted-here", "ns/written", "ns/written-deleted"}, 4}, failed, "late changes that were not applied")
	want := map[string]string{
		"ns/born": "late", "ns/born-twice": "by a client", "ns/kept": "first", "ns/recreated": "later", "ns/twice": "late",
		"ns/updated": "late", "ns/written": "by a client", "ns/written-deleted": "by a client",
	}
	expect.Equal(t, want, objects(t, to), "objects")
}

// TestWatchLost loses the watch after the switch: it is not opened again. If the target is not open, the source serves
// the resource again, and another attempt reads only what has changed.
func TestWatchLost(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		prepare func(*importFixture)
		lose    func(f *importFixture, result <-chan error)
		want    State
	}{
		"before the target is open": {
			func(f *importFixture) { f.follow.Quiet = time.Hour },
			func(f *importFixture, _ <-chan error) {
				close(f.switched)
				f.source.lose()
			},
			Following,
		},
		"after it is open": {
			func(f *importFixture) { f.follow.Settle = time.Hour },
			func(f *importFixture, result <-chan error) {
				close(f.switched)
				f.wait(result, f.opened)
				f.source.lose()
			},
			Switched,
		},
		"shortly before the switch, when the source holds requests": {
			func(*importFixture) {},
			func(f *importFixture, result <-chan error) {
				held := make(chan struct{})
				f.source.holding.Store(&held)
				f.source.lose()
				f.wait(result, held)
				f.source.holding.Store(nil)
				close(f.switched)
			},
			Following,
		},
		"by a source that no longer responds when its silence is to be a proof": {
			func(f *importFixture) { f.follow.Quiet = 0 },
			func(f *importFixture, _ <-chan error) {
				f.source.dead.Store(true)
				close(f.switched)
			},
			Following,
		},
		"by a source that no longer responds after it has proven to": {
			func(f *importFixture) { f.follow.Prove, f.follow.Quiet = f.switched, time.Hour },
			func(f *importFixture, result <-chan error) {
				close(f.switched)
				f.wait(result, f.proven)
				f.source.dead.Store(true)
			},
			Following,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newImportFixture(t)
			f.fill(100)
			tc.prepare(f)
			i, result := f.startCopied()
			expect.NoError(t, i.Verify(f.ctx))
			watches, pages := f.source.watches.Load(), f.source.pages.Load()
			tc.lose(f, result)
			f.wantLost(i, result, tc.want)
			expect.Equal(t, watches, f.source.watches.Load(), "watches")
			if tc.want == Switched {
				return
			}
			f.source.dead.Store(false)
			put(t, f.config.From, "ns/0001", "while the source serves the resource again")
			f.prepare()
			result = f.start(i)
			f.wait(result, f.caughtUp)
			expect.NoError(t, i.Verify(f.ctx))
			expect.Equal(t, pages, f.source.pages.Load(), "pages that were read")
			close(f.switched)
			expect.NoError(t, <-result)
			f.wantEqual()
		})
	}
}

// TestProve: an API server that was cut off from its etcd sends no changes for a while, and responds.
func TestProve(t *testing.T) {
	t.Parallel()
	f := newImportFixture(t)
	f.fill(10)
	prove := make(chan struct{})
	f.follow.Prove = prove
	_, result := f.startCopied()
	f.source.stalled.Lock()
	put(t, f.config.From, "ns/new", "while nothing is sent")
	close(prove)
	progressRequests := f.source.progressRequests.Load()
	poll.UntilDone(t, "it asks for progress", func() (bool, string) {
		now := f.source.progressRequests.Load()
		return now > progressRequests+5, fmt.Sprintf("%d times", now-progressRequests)
	})
	if isClosed(f.proven) {
		t.Error("it is proven that the watch delivers what was written, and it did not")
	}
	f.source.stalled.Unlock()
	f.wait(result, f.proven)
	f.wantEqual()

	// The API server loses its etcd, for a moment: the watch is opened again.
	watches := f.source.watches.Load()
	f.source.dead.Store(true)
	poll.UntilDone(t, "the watch is opened again", func() (bool, string) {
		now := f.source.watches.Load()
		return now > watches, fmt.Sprintf("%d watches", now)
	})
	f.source.dead.Store(false)
	poll.UntilDone(t, "a watch stays", func() (bool, string) {
		if now := f.source.watches.Load(); now != watches {
			watches, progressRequests = now, f.source.progressRequests.Load()
		}
		now := f.source.progressRequests.Load()
		return now > progressRequests+2, fmt.Sprintf("%d requests for its progress", now-progressRequests)
	})
	put(t, f.config.From, "ns/newer", "to the last watch")
	f.untilCopied("ns/newer", "to the last watch")
	close(f.switched)
	expect.NoError(t, <-result)
	f.wantEqual()
}

// TestImportCompacted compacts changes that were not seen, before the switch.
func TestImportCompacted(t *testing.T) {
	t.Parallel()
	f := newImportFixture(t)
	f.fill(100)
	i := NewImporter(f.config)
	expect.NoError(t, i.Copy(f.ctx))
	f.compactChanges()
	result := f.start(i)
	f.wait(result, f.caughtUp)
	f.wantEqual()
	pages := f.source.pages.Load()
	expect.NoError(t, i.Verify(f.ctx))
	if f.source.pages.Load() == pages {
		t.Error("the copy began again, and was not verified")
	}
	close(f.switched)
	expect.NoError(t, <-result)
	f.wantEqual()
}

func TestImportCancel(t *testing.T) {
	t.Parallel()
	for name, reach := range map[string]func(f *importFixture, i *Importer){
		"absent": func(*importFixture, *Importer) {},
		"copying": func(f *importFixture, _ *Importer) {
			ctx, kill := context.WithCancel(f.ctx)
			defer kill()
			f.config.Report = func(p Progress) { kill() }
			wantError(f, NewImporter(f.config).Copy(ctx), context.Canceled)
			f.config.Report = nil
			f.wantState(NewImporter(f.config), Copying)
		},
		"copied": func(f *importFixture, i *Importer) { expect.NoError(f, i.Copy(f.ctx)) },
		"switching": func(f *importFixture, i *Importer) {
			expect.NoError(f, i.Copy(f.ctx))
			f.follow.Quiet = time.Hour
			result := f.start(i)
			f.wait(result, f.caughtUp)
			close(f.switched)
			// The record is gone with which it could write.
			expect.NoError(f, i.Cancel(f.ctx))
			put(f, f.config.From, "ns/x", "x")
			wantError(f, <-result, ErrFenced, "what followed")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newImportFixture(t)
			f.fill(100)
			reach(f, NewImporter(f.config))
			for range 2 {
				expect.NoError(t, NewImporter(f.config).Cancel(f.ctx))
			}
			f.wantState(NewImporter(f.config), Cleaned)
			if got := objects(t, f.config.To); len(got) > 0 {
				t.Errorf("the target has %d objects", len(got))
			}
			wantError(t, NewImporter(f.config).Copy(f.ctx), ErrSwitched, "a canceled import begins again")
			f.config.UID = "again"
			expect.NoError(t, NewImporter(f.config).Copy(f.ctx))
		})
	}
}

// TestReplacedImportCancels: only the last Importer that has fenced the others deletes the copy, or adopts objects.
func TestReplacedImportCancels(t *testing.T) {
	t.Parallel()
	f := newImportFixture(t)
	f.fill(10)
	replaced, last := NewImporter(f.config), NewImporter(f.config)
	expect.NoError(t, replaced.Copy(f.ctx))
	for _, i := range []*Importer{replaced, last} {
		if state, err := i.Fence(f.ctx); err != nil || state != Following {
			t.Fatalf("fenced in state %s (%v)", state, err)
		}
	}
	for what, do := range map[string]func(context.Context) error{"cancel": replaced.Cancel, "adopt": replaced.Adopt} {
		wantError(t, do(f.ctx), ErrFenced, what)
	}
	f.wantEqual()
	expect.NoError(t, last.Cancel(f.ctx))
}

// TestAdopt leaves the objects that the target has, also when it is canceled.
func TestAdopt(t *testing.T) {
	t.Parallel()
	f := newImportFixture(t)
	put(t, f.config.To, "ns/a", "a")
	i := NewImporter(f.config)
	for range 2 {
		expect.NoError(t, i.Adopt(f.ctx))
	}
	f.wantState(i, Adopted)
	wantError(t, i.Copy(f.ctx), ErrSwitched, "a copy to objects that were adopted")
	expect.NoError(t, i.Cancel(f.ctx))
	f.wantState(i, Cleaned)
	wantError(t, i.Adopt(f.ctx), ErrFenced, "canceled, and adopted again")
	f.config.UID = "again"
	expect.NoError(t, NewImporter(f.config).Adopt(f.ctx))
	if got := objects(t, f.config.To); len(got) != 1 {
		t.Errorf("the target has the objects %v", got)
	}
}

// TestImportAgain imports into a Store again, after a rollback has emptied it.
func TestImportAgain(t *testing.T) {
	t.Parallel()
	f := newImportFixture(t)
	f.fill(5)
	for n := range 2 {
		f.config.UID = move(n)
		f.prepare()
		_, result := f.startCopied()
		close(f.switched)
		expect.NoError(t, <-result)
		f.wantEqual()
		_, err := f.to.Delete(f.ctx, keys.Objects("/two", widgets), clientv3.WithPrefix())
		expect.NoError(t, err)
		if f.state(f.config.To).Closed {
			t.Error("the target is closed")
		}
	}
}

// endingSource ends its first watch together with the first change.
type endingSource struct {
	*source
	ended atomic.Bool
}

func (s *endingSource) Watch(ctx context.Context, after int64) (Watch, error) {
	w, err := s.source.Watch(ctx, after)
	if err != nil || s.ended.Swap(true) {
		return w, err
	}
	events := make(chan Events, 1)
	for e := range w.Events() {
		if len(e.Changes) > 0 {
			events <- e
			break
		}
	}
	close(events)
	s.lose()
	return watchOf{w, s.source, events, ctx.Done()}, nil
}

// TestWatchEndsWithChange receives a change and the end of the watch at once, as from an API server that stops.
func TestWatchEndsWithChange(t *testing.T) {
	t.Parallel()
	f := newImportFixture(t)
	f.fill(3)
	expect.NoError(t, NewImporter(f.config).Copy(f.ctx))
	put(t, f.config.From, "ns/last", "of this watch")
	f.config.Source = &endingSource{source: f.source}
	result := f.start(NewImporter(f.config))
	f.wait(result, f.caughtUp)
	f.wantEqual()
}
