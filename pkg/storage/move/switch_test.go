// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package move

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apimachinery/pkg/types"

	"github.com/annex-dev/annex/pkg/storage/etcd/embeddedetcd/etcdtest"
	"github.com/annex-dev/annex/pkg/storage/etcd/etcdkv"
	"github.com/annex-dev/annex/pkg/storage/etcd/keys"
	"github.com/annex-dev/annex/pkg/storage/layer/freeze"
	"github.com/annex-dev/annex/pkg/storage/layer/revision"
	"github.com/annex-dev/annex/pkg/test/expect"
)

// complete does what is left of a move.
func complete(ctx context.Context, m *Mover) error {
	for {
		state, err := m.State(ctx)
		if err != nil {
			return err
		}
		switch state {
		case Absent, Copying:
			if err = m.Copy(ctx); err == nil {
				err = m.Verify(ctx)
			}
		case Following, Frozen, Closed:
			err = m.Switch(ctx)
		case Switched:
			err = m.Clean(ctx)
		case Cleaned:
			return nil
		}
		if err != nil {
			return fmt.Errorf("%s: %w", state, err)
		}
	}
}

func (f *fixture) state(e End) revision.State {
	f.Helper()
	state, err := revision.LoadState(f.ctx, e.KV, e.Prefix, widgets)
	expect.NoError(f, err)
	return state
}

// wantSwitched checks that only the target is open, with higher resource versions.
func (f *fixture) wantSwitched(c Config) {
	f.Helper()
	from, to := f.state(c.From), f.state(c.To)
	if !from.Closed || from.ClosedFor != "hosted" || to.Closed {
		f.Errorf("the source is %+v and the target %+v, want only the target open", from, to)
	}
	highest := func(e End, s revision.State) int64 {
		now, err := e.KV.Get(f.ctx, "x")
		expect.NoError(f, err)
		return now.Header.GetRevision() + s.Offset
	}
	if seen, first := highest(c.From, from), to.ModRevision+to.Offset; first <= seen {
		f.Errorf("resource versions begin at %d, clients have seen %d", first, seen)
	}
}

func TestSwitch(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.fill(120)
	want := objects(t, f.config.From)
	for i := range 4 { // there and back
		config := f.config
		if i%2 == 1 {
			config = f.reversed("")
		}
		config.UID = move(i)
		m := New(config)
		if err := m.Switch(f.ctx); err == nil {
			t.Error("a move that has not begun can be switched")
		}
		if err := m.Clean(f.ctx); err == nil {
			t.Error("a move that has not begun can be cleaned")
		}
		expect.NoError(t, m.Copy(f.ctx))
		if err := m.Clean(f.ctx); err == nil {
			t.Error("a move can be cleaned before it is switched")
		}
		expect.NoError(t, m.Verify(f.ctx))
		changed := fmt.Sprintf("ns/%04d", i)
		want[changed] = fmt.Sprint("move ", i)
		put(t, config.From, changed, want[changed])
		expect.NoError(t, m.Switch(f.ctx))
		f.wantState(m, Switched)
		f.wantSwitched(config)
		expect.Equal(t, want, objects(t, config.To), "objects after the switch")
		if got := objects(t, config.From); len(got) != len(want) {
			t.Errorf("the source has %d objects, want %d, without the tombstone", len(got), len(want))
		}
		expect.NoError(t, m.Switch(f.ctx))
		for what, err := range map[string]error{"canceled": m.Cancel(f.ctx), "copied": m.Copy(f.ctx)} {
			if !errors.Is(err, ErrSwitched) {
				t.Errorf("it can be %s: %v", what, err)
			}
		}
		expect.NoError(t, m.Clean(f.ctx))
		expect.NoError(t, m.Clean(f.ctx))
		f.wantState(m, Cleaned)
		f.wantSwitched(config)
		if got := objects(t, config.From); len(got) > 0 {
			t.Errorf("%d objects are left", len(got))
		}
	}
}

func TestVerify(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.fill(60)
	m := New(f.config)
	wantError(t, m.Verify(f.ctx), ErrNotCopied, "before the copy")
	expect.NoError(t, m.Copy(f.ctx))
	expect.NoError(t, m.Verify(f.ctx))
	put(t, f.config.From, "ns/0001", "later than what is recorded")
	expect.NoError(t, m.Verify(f.ctx))
	expect.Equal(t, int64(60), m.Compared())
	f.catchUp()
	put(t, f.config.To, "ns/0002", "different")
	put(t, f.config.To, "ns/0002a", "more")
	remove(t, f.config.To, "ns/0003")
	// What is recorded is recorded after it.
	put(t, f.config.From, "ns/0004", "changed")
	f.catchUp()
	var different *DifferentError
	if err := m.Verify(f.ctx); !errors.As(err, &different) {
		t.Fatalf("error %v", err)
	}
	expect.Equal(t, &DifferentError{[]string{"ns/0002", "ns/0002a", "ns/0003"}, 3}, different, "differences")
}

// errLost is the error of an injected failure.
var errLost = errors.New("the connection was lost")

// faulty fails the n-th request to etcd, before or after it is performed, and all that follow.
type faulty struct {
	left  atomic.Int64
	after bool
}

func (f *faulty) kv(below clientv3.KV) clientv3.KV {
	return etcdkv.New(below, func(ctx context.Context, op clientv3.Op) (clientv3.OpResponse, error) {
		switch left := f.left.Add(-1); {
		case left > 0:
			return below.Do(ctx, op)
		case left == 0 && f.after:
			if _, err := below.Do(ctx, op); err != nil {
				return clientv3.OpResponse{}, err
			}
		}
		return clientv3.OpResponse{}, errLost
	})
}

// TestEveryFailure moves there and back, and each time loses the connections to etcd at another
// request, before or after it is performed. Another Mover completes or cancels the move.
func TestEveryFailure(t *testing.T) {
	t.Parallel()
	for name, cancel := range map[string]bool{"complete": false, "cancel": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			f.fill(9)
			there, back := f.config, f.reversed("")
			succeeded := false
			for n := int64(1); !succeeded; n++ {
				for _, after := range []bool{false, true} {
					config := there
					config.UID = move(int(n)) + types.UID(fmt.Sprint(after))
					succeeded = f.failAt(config, n, after, cancel)
					if f.state(config.From).Closed {
						there, back = back, there
					}
				}
				if n > 500 {
					t.Fatal("a move never succeeds")
				}
			}
		})
	}
}

// failAt moves with a failure, and then completes or cancels the move.
func (f *fixture) failAt(config Config, n int64, after, cancel bool) (succeeded bool) {
	f.Helper()
	what := fmt.Sprintf("request %d, after it: %v", n, after)
	put(f, config.From, "ns/0001", what)
	want := objects(f, config.From)
	faults := &faulty{after: after}
	faults.left.Store(n)
	failing := config
	failing.From.KV, failing.To.KV = faults.kv(config.From.KV), faults.kv(config.To.KV)
	err := complete(f.ctx, New(failing))
	if err != nil && !errors.Is(err, errLost) {
		f.Fatalf("%s: %v", what, err)
	}
	m := New(config)
	before, err2 := m.State(f.ctx)
	expect.NoError(f, err2)
	end := config.To
	if cancel {
		switch canceled := m.Cancel(f.ctx); {
		case errors.Is(canceled, ErrSwitched):
			if before != Closed && before != Switched && before != Cleaned {
				f.Errorf("%s: it cannot be canceled, the state is %s", what, before)
			}
		case canceled != nil:
			f.Fatalf("%s: %v", what, canceled)
		default:
			f.wantCanceled(config, what)
			end = config.From
		}
	}
	if end == config.To {
		expect.NoError(f, complete(f.ctx, m), what)
		f.wantSwitched(config)
	}
	expect.Equal(f, want, objects(f, end), "%s: objects", what)
	return err == nil
}

// wantCanceled checks that a move has left nothing.
func (f *fixture) wantCanceled(config Config, what string) {
	f.Helper()
	f.wantState(New(config), Absent)
	if got := objects(f, config.To); len(got) > 0 {
		f.Errorf("%s: the target has %d objects", what, len(got))
	}
	if f.state(config.From).Closed {
		f.Errorf("%s: the source is closed", what)
	}
	for what, key := range map[string]string{"frozen": keys.Frozen(config.From.Prefix, widgets), "departing": keys.Departure(config.From.Prefix, widgets)} {
		if found, err := config.From.KV.Get(f.ctx, key); err != nil || found.Count > 0 {
			f.Errorf("the source is %s (%v)", what, err)
		}
	}
	expect.NoError(f, New(config).Cancel(f.ctx))
}

// TestNoWriteIsLost switches while replicas write through their Gates: what one of them
// acknowledges is at the target, and all end with a HeldError.
func TestNoWriteIsLost(t *testing.T) {
	t.Parallel()
	endpoint := etcdtest.Start(t, nil)
	f := newFixture(t)
	f.config.From.KV, f.config.From.Watcher = endpoint.Client().KV, endpoint.Client().Watcher
	f.fill(20)
	m := New(f.config)
	expect.NoError(t, m.Copy(f.ctx))
	type result struct {
		acknowledged []string
		err          error
	}
	results := make(chan result)
	for writer := range 4 {
		gate := freeze.NewGate(freeze.Target{KV: f.config.From.KV, Prefix: "/one", Resource: widgets}, f.state(f.config.From))
		go func() {
			var r result
			// Without a pace they can write faster than everything is copied and compared, for ever.
			pace := time.NewTicker(time.Millisecond)
			defer pace.Stop()
			for i := 0; r.err == nil; i++ {
				<-pace.C
				name := fmt.Sprintf("ns/w%d-%d", writer, i)
				key := keys.Objects("/one", widgets) + name
				_, r.err = gate.KV().Txn(f.ctx).Then(clientv3.OpPut(key, "1"+key+"="+name)).Commit()
				if r.err == nil {
					r.acknowledged = append(r.acknowledged, name)
				}
			}
			results <- r
		}()
	}
	expect.NoError(t, m.Switch(f.ctx))
	all, count := objects(t, f.config.To), 20
	for range 4 {
		r := <-results
		if !freeze.IsHeld(r.err) {
			t.Errorf("a writer ended with %v", r.err)
		}
		count += len(r.acknowledged)
		for _, name := range r.acknowledged {
			if all[name] != name {
				t.Errorf("%s was acknowledged and is %q", name, all[name])
			}
		}
	}
	if len(all) != count {
		t.Errorf("the target has %d objects, %d were acknowledged", len(all), count)
	}
}
