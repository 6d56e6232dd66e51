// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package move

import (
	"context"
	"errors"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apimachinery/pkg/types"

	"github.com/annex-dev/annex/pkg/storage/etcd/keys"
	"github.com/annex-dev/annex/pkg/storage/layer/freeze"
	"github.com/annex-dev/annex/pkg/storage/layer/revision"
	"github.com/annex-dev/annex/pkg/test/expect"
)

func (f *fixture) exporter(uid types.UID) *Exporter {
	return NewExporter(Config{Resource: widgets, UID: uid, HostedResource: "hosted", From: f.config.From})
}

// heldExporter returns one that has taken the resource over.
func (f *fixture) heldExporter(uid types.UID) *Exporter {
	f.Helper()
	e := f.exporter(uid)
	expect.NoError(f.T, e.Fence(f.ctx))
	return e
}

func (f *fixture) isFrozen() bool {
	f.Helper()
	found, err := f.config.From.KV.Get(f.ctx, keys.Frozen(f.config.From.Prefix, widgets))
	expect.NoError(f.T, err)
	return found.Count > 0
}

// TestExporterIsFenced takes a resource over while another Exporter, whose process was paused, is at a step. Its next
// step must not succeed: after a thaw the successor's clients write.
func TestExporterIsFenced(t *testing.T) {
	t.Parallel()
	for name, step := range map[string]func(context.Context, *Exporter) error{
		"freeze": func(ctx context.Context, e *Exporter) error { return e.Freeze(ctx) },
		"close": func(ctx context.Context, e *Exporter) error {
			_, err := e.Close(ctx)
			return err
		},
		"thaw":   func(ctx context.Context, e *Exporter) error { return e.Thaw(ctx) },
		"return": func(ctx context.Context, e *Exporter) error { return e.Return(ctx) },
		"cancel": func(ctx context.Context, e *Exporter) error { return e.Cancel(ctx) },
		"pair":   func(ctx context.Context, e *Exporter) error { return e.PutPair(ctx, "uid", nil) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			f.fill(1)
			paused := f.heldExporter("move")
			if name == "close" || name == "return" || name == "thaw" {
				expect.NoError(t, paused.Freeze(f.ctx))
			}
			successor := f.heldExporter("move")
			expect.NoError(t, successor.Thaw(f.ctx))
			wantError(t, step(f.ctx, paused), ErrFenced)
			if err := paused.End(f.ctx); err == nil {
				t.Error("the objects of a served resource were deleted")
			}
			if len(objects(t, f.config.From)) != 1 || f.isFrozen() {
				t.Errorf("objects %v, frozen %t", objects(t, f.config.From), f.isFrozen())
			}
			expect.NoError(t, successor.Freeze(f.ctx))
		})
	}
}

// TestExport returns a resource, with an interruption after each step. Watches end before objects are deleted, more than a
// transaction does, and requests are refused as before.
func TestExport(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.fill(deletedAtOnce + 10)
	first, from := f.heldExporter("move"), f.config.From
	expect.NoError(t, revision.Save(f.ctx, from.KV, from.Prefix, widgets, 1000))
	wantError(t, first.Freeze(f.ctx), ErrFenced, "frozen after its revisions were raised")
	gate := freeze.NewGate(freeze.Target{KV: from.KV, Prefix: from.Prefix, Resource: widgets}, f.state(from))
	folder := keys.Objects(from.Prefix, widgets)
	watch := gate.Watcher(from.Watcher).Watch(f.ctx, folder, clientv3.WithPrefix(), clientv3.WithCreatedNotify())
	<-watch
	first = f.heldExporter("move")
	expect.NoError(t, first.Freeze(f.ctx))
	expect.NoError(t, first.PutPair(f.ctx, "a", []byte("1")))

	second := f.heldExporter("move")
	now, err := second.Revision(f.ctx)
	expect.NoError(t, err)
	for range 2 {
		highest, err := second.Close(f.ctx)
		if err != nil || highest <= now+1000 {
			t.Fatalf("closed at %d: %v, want above %d", highest, err, now+1000)
		}
	}
	second, third := f.heldExporter("move"), f.exporter("move")
	for range 2 {
		expect.NoError(t, second.Return(f.ctx))
	}
	expect.NoError(t, third.Fence(f.ctx))
	for _, e := range []*Exporter{second, third} {
		wantError(t, e.Cancel(f.ctx), ErrSwitched, "cancel after the return")
	}
	expect.NoError(t, third.End(f.ctx))
	fourth := f.heldExporter("move") // as after a crash before that was recorded
	expect.NoError(t, fourth.End(f.ctx))
	left, err := from.KV.Get(f.ctx, keys.Departure(from.Prefix, widgets))
	if err != nil || left.Count > 0 || len(objects(t, from)) > 0 {
		t.Errorf("record %v (%v), objects %v", left, err, objects(t, from))
	}
	for response := range watch {
		for _, event := range response.Events {
			if event.Type == clientv3.EventTypeDelete {
				t.Errorf("the watch has the deletion of %s", event.Kv.Key)
			}
		}
	}
	if _, err := gate.KV().Txn(f.ctx).Then(clientv3.OpPut(folder+"ns/late", "")).Commit(); !freeze.IsReturned(err) {
		t.Errorf("a write to a closed resource: %v, want a ReturnedError", err)
	}
}

// TestExporterCancel leaves the resource as it was, without pairs.
func TestExporterCancel(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.fill(1)
	e := f.heldExporter("move")
	expect.NoError(t, e.Freeze(f.ctx))
	for _, uid := range []types.UID{"a", "b"} {
		expect.NoError(t, e.PutPair(f.ctx, uid, []byte("main "+uid)))
	}
	e, found := f.heldExporter("move"), map[types.UID]string{}
	expect.NoError(t, e.Pairs(f.ctx, func(uid types.UID, value []byte) error {
		found[uid] = string(value)
		return nil
	}))
	if len(found) != 2 || found["b"] != "main b" {
		t.Errorf("pairs %v", found)
	}
	expect.NoError(t, e.Cancel(f.ctx))
	if f.isFrozen() || len(objects(t, f.config.From)) != 1 {
		t.Errorf("frozen %t, objects %v", f.isFrozen(), objects(t, f.config.From))
	}
	wantError(t, f.exporter("move").Fence(f.ctx), ErrEnded, "a canceled export begins again")
	next := f.heldExporter("another") // nothing is left of the first
	expect.NoError(t, next.Pairs(f.ctx, func(uid types.UID, _ []byte) error {
		t.Errorf("the pair of %s is left", uid)
		return nil
	}))
	var refused *Refusal
	if err := e.Fence(f.ctx); !errors.As(err, &refused) || refused.Reason != ReasonMoving {
		t.Errorf("fence what another move has begun: %v, want %s", err, ReasonMoving)
	}
	if err := New(f.config).Check(f.ctx); !errors.As(err, &refused) || refused.Reason != ReasonMoving {
		t.Errorf("move it to another Store: %v, want %s", err, ReasonMoving)
	}
}
