// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package move

import (
	"testing"

	"github.com/annex-dev/annex/pkg/storage/etcd/embeddedetcd/etcdtest"
	"github.com/annex-dev/annex/pkg/storage/etcd/keys"
	"github.com/annex-dev/annex/pkg/test/expect"
)

// TestLostTarget ends moves whose target is lost: the source serves the resource as before, and it
// can be moved elsewhere.
func TestLostTarget(t *testing.T) {
	t.Parallel()
	for name, until := range map[string]State{"followed": Following, "frozen": Frozen, "closed": Closed} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			f.fill(20)
			want := objects(t, f.config.From)
			m := New(f.config)
			expect.NoError(t, m.Copy(f.ctx))
			f.leaveAt(m, until)
			without := f.config
			without.To = End{}
			expect.NoError(t, New(without).Release(f.ctx))
			expect.NoError(t, New(without).Release(f.ctx), "again")
			if m.Switch(f.ctx) == nil {
				t.Error("the move can still be switched")
			}
			if f.state(f.config.From).Closed {
				t.Error("the source is closed")
			}
			for _, key := range []string{
				keys.Frozen(f.config.From.Prefix, widgets), keys.Departure(f.config.From.Prefix, widgets), keys.Tombstone(f.config.From.Prefix, widgets),
			} {
				if found, err := f.config.From.KV.Get(f.ctx, key); err != nil || found.Count > 0 {
					t.Errorf("the source has %s (%v)", key, err)
				}
			}
			another := etcdtest.StartClient(t)
			f.config.UID, f.config.To = "another", End{KV: another.KV, Watcher: another.Watcher, Prefix: "/three", Transformer: bound("3")}
			expect.NoError(t, complete(f.ctx, New(f.config)))
			expect.Equal(t, want, objects(t, f.config.To), "objects moved elsewhere")
			f.wantSwitched(f.config)
		})
	}
}

// leaveAt leaves a move whose objects are copied in a later state.
func (f *fixture) leaveAt(m *Mover, until State) {
	f.Helper()
	left, err := m.fence(f.ctx)
	expect.NoError(f, err)
	if until == Frozen || until == Closed {
		frozenAt, err := left.freeze(f.ctx)
		expect.NoError(f, err)
		if until == Closed {
			expect.NoError(f, left.close(f.ctx, frozenAt))
		}
	}
	f.wantState(m, until)
}

// TestLostSource ends a move whose source is lost after the switch.
func TestLostSource(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.fill(20)
	m, without := New(f.config), f.config
	without.From = End{}
	expect.NoError(t, m.Copy(f.ctx))
	if New(without).Clean(f.ctx) == nil {
		t.Error("the move can end without the source before the switch")
	}
	expect.NoError(t, m.Switch(f.ctx))
	expect.NoError(t, New(without).Clean(f.ctx))
	f.wantState(New(without), Cleaned)
	f.wantEqual()
}
