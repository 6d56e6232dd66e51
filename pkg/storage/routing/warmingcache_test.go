// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package routing

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"

	"github.com/annex-dev/annex/pkg/test/expect"
)

// layer counts its lists.
type layer struct {
	storage.Interface
	readyAt time.Time
	asked   int
}

func (l *layer) ReadinessCheck() error {
	if time.Now().Before(l.readyAt) {
		return storage.ErrStorageNotReady
	}
	return nil
}

func (l *layer) GetList(context.Context, string, storage.ListOptions, runtime.Object) error {
	l.asked++
	return nil
}

func (l *layer) Watch(context.Context, string, storage.ListOptions) (watch.Interface, error) {
	return nil, l.ReadinessCheck()
}

func TestListsOfWarmingCache(t *testing.T) {
	t.Parallel()
	const at = 10 * time.Millisecond
	for name, tc := range map[string]struct {
		readyAt, listAt time.Duration
		many            bool
		version         string
		wantEtcd        bool
	}{
		"filling":                  {readyAt: time.Hour, listAt: at, wantEtcd: true},
		"filling for long":         {readyAt: time.Hour, listAt: time.Minute, wantEtcd: true},
		"filling with many":        {readyAt: time.Hour, listAt: at, many: true},
		"filling, any will do":     {readyAt: time.Hour, listAt: at, version: "0"},
		"filled":                   {listAt: at, wantEtcd: true},
		"filled with many":         {listAt: at, many: true},
		"filled, not older than 7": {listAt: at, version: "7"},
		"warm":                     {listAt: warmUpTime},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				cached, etcd := &layer{readyAt: time.Now().Add(tc.readyAt)}, &layer{}
				y := newWarmingCache(cached, etcd, func() bool { return !tc.many })
				time.Sleep(tc.listAt)
				expect.NoError(t, y.GetList(t.Context(), "/", storage.ListOptions{ResourceVersion: tc.version}, nil))
				if asked := etcd.asked == 1; asked != tc.wantEtcd || etcd.asked+cached.asked != 1 {
					t.Errorf("etcd was asked %d times and the cache %d times, want one: etcd %t", etcd.asked, cached.asked, tc.wantEtcd)
				}
			})
		})
	}
}

func TestWatchesOfWarmingCache(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		readyAt, cancelled time.Duration
		many               bool
		wantWait           time.Duration
		wantRefused        bool
	}{
		"filled":            {},
		"filled soon":       {readyAt: 20 * time.Millisecond, wantWait: 20 * time.Millisecond},
		"filled late":       {readyAt: time.Minute, wantWait: warmUpTime, wantRefused: true},
		"cancelled":         {readyAt: time.Minute, cancelled: 30 * time.Millisecond, wantWait: 30 * time.Millisecond, wantRefused: true},
		"many, filled soon": {readyAt: 20 * time.Millisecond, many: true, wantRefused: true},
		"many, filled":      {many: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				cached := &layer{readyAt: began.Add(tc.readyAt)}
				y := newWarmingCache(cached, &layer{}, func() bool { return !tc.many })
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if tc.cancelled > 0 {
					time.AfterFunc(tc.cancelled, cancel)
				}
				if _, err := y.Watch(ctx, "/", storage.ListOptions{}); (err != nil) != tc.wantRefused {
					t.Errorf("error %v, want it refused: %t", err, tc.wantRefused)
				}
				if waited := time.Since(began); waited != tc.wantWait {
					t.Errorf("it waited for %s, want %s", waited, tc.wantWait)
				}
			})
		})
	}
}
