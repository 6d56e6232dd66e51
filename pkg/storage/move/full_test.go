// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package move

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/kubernetes"

	"github.com/annex-dev/annex/pkg/storage/etcd/embeddedetcd"
	"github.com/annex-dev/annex/pkg/storage/etcd/embeddedetcd/etcdtest"
	"github.com/annex-dev/annex/pkg/test/expect"
)

// newFullFixture returns a fixture whose etcds are full once fillUp was called.
func newFullFixture(t *testing.T) *fixture {
	t.Helper()
	small := func(c *embeddedetcd.Config) { c.QuotaBytes = 4 << 20 }
	f := &fixture{T: t, ctx: t.Context(), from: etcdtest.StartClient(t, small), to: etcdtest.StartClient(t, small)}
	f.configure()
	return f
}

const others = "/others/"

// fillUp writes others until etcd takes only deletions.
func (f *fixture) fillUp(etcd *kubernetes.Client) {
	f.Helper()
	value := strings.Repeat("x", 64<<10)
	var err error
	for i := 0; err == nil; i++ {
		_, err = etcd.Put(f.ctx, fmt.Sprint(others, i), value)
	}
	if !errors.Is(err, rpctypes.ErrNoSpace) {
		f.Fatal(err)
	}
}

// makeRoom deletes what fillUp has written.
func (f *fixture) makeRoom(etcd *kubernetes.Client) {
	f.Helper()
	deleted, err := etcd.Delete(f.ctx, others, clientv3.WithPrefix())
	expect.NoError(f, err)
	// Defragmentation frees only what was compacted before.
	_, err = etcd.Compact(f.ctx, deleted.Header.Revision, clientv3.WithCompactPhysical())
	expect.NoError(f, err)
	_, err = etcd.Defragment(f.ctx, etcd.Endpoints()[0])
	expect.NoError(f, err)
	_, err = etcd.AlarmDisarm(f.ctx, &clientv3.AlarmMember{})
	expect.NoError(f, err)
}

// canceler is a Mover or an Importer.
type canceler interface{ Cancel(context.Context) error }

// cancelInterrupted cancels, and loses the connection to the target after each request. Another one continues.
func (f *fixture) cancelInterrupted(to clientv3.KV, newCanceler func(to clientv3.KV) canceler) error {
	for n := int64(1); ; n++ {
		faults := &faulty{after: true}
		faults.left.Store(n)
		if err := newCanceler(faults.kv(to)).Cancel(f.ctx); !errors.Is(err, errLost) {
			return err
		}
	}
}

// TestCancelIntoFullStore cancels moves into a Store that is full, which makes room there.
func TestCancelIntoFullStore(t *testing.T) {
	t.Parallel()
	t.Run("a move", func(t *testing.T) {
		t.Parallel()
		f := newFullFixture(t)
		f.fill(deletedAtOnce + 10)
		m := New(f.config)
		expect.NoError(t, m.Copy(f.ctx))
		f.fillUp(f.to)
		put(t, f.config.From, "ns/late", "late")
		wantError(t, m.Follow(f.ctx, func() {}), rpctypes.ErrNoSpace, "a move into a full Store")
		expect.NoError(t, f.cancelInterrupted(f.config.To.KV, func(to clientv3.KV) canceler {
			config := f.config
			config.To.KV = to
			return New(config)
		}))
		f.wantCanceled(f.config, "into a full Store")
		f.makeRoom(f.to)
		config := f.config
		config.UID = "again"
		expect.NoError(t, complete(f.ctx, New(config)))
	})
	t.Run("an import", func(t *testing.T) {
		t.Parallel()
		f := newFullFixture(t)
		f.fill(deletedAtOnce + 10)
		config := Config{Resource: widgets, UID: "import", HostedResource: "hosted", Source: newEnd(f.config.From, widgets, "unused"), To: f.config.To}
		expect.NoError(t, NewImporter(config).Copy(f.ctx))
		f.fillUp(f.to)
		newCanceler := func(to clientv3.KV) canceler {
			config := config
			config.To.KV = to
			return NewImporter(config)
		}
		// It deletes all, and opens the Store once that has room.
		wantError(t, f.cancelInterrupted(config.To.KV, newCanceler), rpctypes.ErrNoSpace, "the import is canceled with")
		if got := objects(t, config.To); len(got) > 0 {
			t.Errorf("the target has %d objects", len(got))
		}
		f.makeRoom(f.to)
		expect.NoError(t, f.cancelInterrupted(config.To.KV, newCanceler))
		if f.state(config.To).Closed {
			t.Error("the target is closed")
		}
	})
}

// TestCleanFullStore deletes the objects of a Store that was filled after the switch.
func TestCleanFullStore(t *testing.T) {
	t.Parallel()
	f := newFullFixture(t)
	f.fill(deletedAtOnce + 10)
	m := New(f.config)
	expect.NoError(t, m.Copy(f.ctx))
	expect.NoError(t, m.Switch(f.ctx))
	f.fillUp(f.from)
	expect.NoError(t, m.Clean(f.ctx))
	f.wantState(m, Cleaned)
	if got := objects(t, f.config.From); len(got) > 0 {
		t.Errorf("%d objects are left", len(got))
	}
}
