// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package move

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/annex-dev/annex/pkg/test/expect"
	"github.com/annex-dev/annex/pkg/test/poll"
)

// presentSource is a source with pages of the present. The next page fails with the error in fails, or the next watch if
// it is ErrCompacted.
type presentSource struct {
	*source
	fails atomic.Pointer[error]
}

func (s *presentSource) Page(ctx context.Context, after string, limit, _ int64) ([]Object, bool, error) {
	if failed := s.fails.Load(); failed != nil && !errors.Is(*failed, ErrCompacted) {
		return nil, false, *failed
	}
	return s.source.Page(ctx, after, limit, 0)
}

func (s *presentSource) Watch(ctx context.Context, after int64) (Watch, error) {
	if failed := s.fails.Load(); failed != nil && errors.Is(*failed, ErrCompacted) {
		s.fails.Store(nil)
		return nil, *failed
	}
	return s.source.Watch(ctx, after)
}

// objectTarget is a Store whose objects are written one by one.
type objectTarget struct {
	end
	from    end
	written atomic.Int64
	// refuse returns why an object is not written.
	refuse atomic.Pointer[func(key string) error]
}

var errFinal = errors.New("it is final")

func (o *objectTarget) IsFinal(err error) bool { return errors.Is(err, errFinal) }
func (o *objectTarget) Written() int64         { return o.written.Load() }

func (o *objectTarget) Write(ctx context.Context, key string, _, _ *Object) error {
	if refuse := o.refuse.Load(); refuse != nil {
		if err := (*refuse)(key); err != nil {
			return err
		}
	}
	o.written.Add(1)
	found, err := o.from.KV.Get(ctx, o.from.objects+key)
	if err != nil {
		return err
	}
	c := change{Object: Object{Key: key}}
	if len(found.Kvs) > 0 {
		c.put = true
		if c.Value, err = o.from.Decode(ctx, Object{Key: key, Value: found.Kvs[0].Value}); err != nil {
			return err
		}
	}
	op, err := o.op(ctx, c)
	if err == nil {
		_, err = o.KV.Do(ctx, op)
	}
	return err
}

// syncFixture is a fixture whose target is not a Store.
type syncFixture struct {
	*fixture
	*Syncer
	source   *presentSource
	target   *objectTarget
	caughtUp chan struct{}
	ended    chan error
}

func newSyncFixture(t *testing.T, objects int) *syncFixture {
	t.Helper()
	f := &syncFixture{fixture: newFixture(t), caughtUp: make(chan struct{}), ended: make(chan error, 1)}
	f.fill(objects)
	from, to := newEnd(f.config.From, widgets, "unused"), newEnd(f.config.To, widgets, "unused")
	f.source, f.target = &presentSource{source: &source{end: from}}, &objectTarget{end: to, from: from}
	f.Syncer = NewSyncer(f.source, f.target, nil)
	return f
}

func (f *syncFixture) refuse(reason func(key string) error) { f.target.refuse.Store(&reason) }

// start runs the Syncer until the test ends.
func (f *syncFixture) start() {
	ctx, cancel := context.WithCancel(f.ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		f.ended <- f.Run(ctx, func() { close(f.caughtUp) })
	}()
	f.Cleanup(func() { cancel(); <-ended })
}

func (f *syncFixture) until(what string, done func() (bool, string)) {
	f.Helper()
	poll.UntilDone(f, what, done)
}

// wantDrained waits until the target has all.
func (f *syncFixture) wantDrained() {
	f.Helper()
	expect.NoError(f, f.Drain(f.ctx))
	f.wantEqual()
	expect.NoError(f, f.Problem())
	expect.NoError(f, f.Verify(f.ctx))
}

// TestSync copies and follows while an object cannot be written, and names it.
func TestSync(t *testing.T) {
	t.Parallel()
	f := newSyncFixture(t, 300)
	put(t, f.config.To, "ns/0001", "first 1")
	put(t, f.config.To, "ns/0002", "different")
	put(t, f.config.To, "ns/more", "too many")
	f.refuse(func(key string) error {
		if key == "ns/0002" || key == "ns/0007" {
			return errors.New("denied")
		}
		return nil
	})
	f.start()
	f.until("the others are written", func() (bool, string) { return len(objects(t, f.config.To)) == 299, fmt.Sprint(f.Progress()) })
	put(t, f.config.From, "ns/0003", "second")
	f.until("a change is written, and only what is refused is left", func() (bool, string) {
		got := objects(t, f.config.To)["ns/0003"]
		return got == "second" && f.Progress().Pending == 2, got
	})
	expect.Equal(t, "write ns/0002 and 1 more in the main cluster: denied", fmt.Sprint(f.Problem()))
	if p := f.Progress(); p.Total != 300 || p.Copied != 298 || p.Pending != 2 || isClosed(f.caughtUp) {
		t.Errorf("progress %+v, caught up %t", p, isClosed(f.caughtUp))
	}
	bounded, cancel := context.WithCancel(f.ctx)
	drained := make(chan error, 1)
	go func() { drained <- f.Drain(bounded) }()
	f.until("it drains", func() (bool, string) { return f.wanted.Load() > 0, "" })
	cancel()
	expect.Error(t, <-drained, "2 are left", "denied")

	f.refuse(func(string) error { return nil })
	f.until("it has caught up", func() (bool, string) { return isClosed(f.caughtUp), fmt.Sprint(f.Problem()) })
	remove(t, f.config.From, "ns/0004")
	f.source.lose()
	put(t, f.config.From, "ns/0005", "second")
	f.wantDrained()
	written := f.Progress().Written
	f.Again("ns/0005")
	f.wantDrained()
	expect.Equal(t, written+1, f.Progress().Written)

	put(t, f.config.To, "ns/0006", "different")
	var different *DifferentError
	err := f.verify(f.ctx, f.sides, 1, func(context.Context) (int64, int64, error) { return 0, 0, nil })
	if !errors.As(err, &different) || different.Count != 1 || different.Objects[0] != "ns/0006" {
		t.Errorf("error %v", err)
	}
	f.Again("ns/0006")
	f.wantDrained()
}

// TestSyncGap compares all objects again after changes were missed, also if a page cannot be read at first.
func TestSyncGap(t *testing.T) {
	t.Parallel()
	f := newSyncFixture(t, 30)
	broken := errors.New("no response")
	f.source.fails.Store(&broken)
	f.start()
	f.until("it reports the page", func() (bool, string) { return errors.Is(f.Problem(), broken), fmt.Sprint(f.Problem()) })
	f.source.fails.Store(nil)
	f.until("it has caught up", func() (bool, string) { return isClosed(f.caughtUp), fmt.Sprint(f.Problem()) })
	f.wantDrained()

	put(t, f.config.To, "ns/0001", "no watch tells")
	compacted := ErrCompacted
	f.source.fails.Store(&compacted)
	f.source.lose()
	f.until("all are compared again", func() (bool, string) {
		got := objects(t, f.config.To)["ns/0001"]
		return got == "first 1", got
	})
	f.wantDrained()
}

// TestSyncIsBounded reads no more pages while too many objects cannot be written.
func TestSyncIsBounded(t *testing.T) {
	t.Parallel()
	f := newSyncFixture(t, 100)
	f.queue.most = 10
	f.refuse(func(string) error { return errors.New("denied") })
	f.start()
	f.until("pages wait", func() (bool, string) { return f.isFull(), fmt.Sprint(f.Progress()) })
	asked := f.source.progressRequests.Load()
	f.until("it goes on to follow", func() (bool, string) { return f.source.progressRequests.Load() > asked+2, "" })
	if got := f.queue.len(); got > 10+2*firstPage {
		t.Errorf("%d objects are pending", got)
	}
	f.refuse(func(string) error { return nil })
	f.until("it has caught up", func() (bool, string) { return isClosed(f.caughtUp), fmt.Sprint(f.Problem()) })
	f.wantDrained()
}

// TestSyncEnds ends with an error of the target that another attempt cannot mend.
func TestSyncEnds(t *testing.T) {
	t.Parallel()
	f := newSyncFixture(t, 10)
	f.refuse(func(key string) error {
		if key == "ns/0003" {
			return errFinal
		}
		return nil
	})
	f.start()
	expect.Error(t, <-f.ended, "ns/0003: it is final")
}

// TestSyncProblem makes the same text of the same failures, however many they are.
func TestSyncProblem(t *testing.T) {
	t.Parallel()
	f := newSyncFixture(t, 0)
	f.refuse(func(key string) error {
		reason, number, _ := strings.Cut(key, "-")
		if number == "00" || reason == "denied" {
			return errors.New(reason)
		}
		return nil
	})
	f.start()
	for i := range 100 {
		for _, reason := range []string{"denied", "changed", "gone", "forbidden", "refused"} {
			put(t, f.config.From, fmt.Sprintf("%s-%02d", reason, i), "x")
		}
	}
	want := `write changed-00 in the main cluster: changed
write denied-00 and 99 more in the main cluster: denied
write forbidden-00 in the main cluster: forbidden
and 2 more errors`
	f.until("all have failed", func() (bool, string) { return fmt.Sprint(f.Problem()) == want, fmt.Sprint(f.Problem()) })
}

// TestDiffering takes an object that has changed on both sides for one that is being copied.
func TestDiffering(t *testing.T) {
	t.Parallel()
	f := newSyncFixture(t, 1)
	put(t, f.config.To, "ns/0000", "different")
	p, err := f.page(f.ctx, "", 1, 0, 0)
	expect.NoError(t, err)
	for name, tc := range map[string]struct {
		from, to int64
		want     int
	}{"nothing has changed": {0, 0, 1}, "the source": {1, 0, 1}, "the copy": {0, 1, 1}, "both": {1, 1, 0}} {
		first := map[string][2]int64{"ns/0000": {p.from[0].Revision - tc.from, p.to[0].Revision - tc.to}}
		got, err := f.differing(f.ctx, p, first)
		expect.NoError(t, err)
		expect.Equal(t, tc.want, len(got), name)
	}
}
