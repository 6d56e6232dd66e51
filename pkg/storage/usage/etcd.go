// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"context"
	"errors"
	"fmt"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// What etcd answers in one page is all in memory at once. Its size is not known
// before, so pages start small and follow the size of what was seen.
const (
	firstPage   = 20
	largestPage = 500
	pageBytes   = 2 << 20
)

var (
	// errReload marks that counts cannot be carried on.
	errReload           = errors.New("everything has to be read again")
	errNoPrevious       = fmt.Errorf("%w: an event came without the value it replaced", errReload)
	errRevisionWentBack = fmt.Errorf("%w: etcd is at an older revision than what was counted", errReload)
	errUnknownSize      = fmt.Errorf("%w: the size of a value that went is not known any more", errReload)
	errCompacted        = fmt.Errorf("%w: the history was compacted", errReload)
	errWatchEnded       = errors.New("the watch ended")
)

// load reads every key at one revision.
func (t *Tracker) load(ctx context.Context) error {
	fresh := newCounts(t.root)
	t.sizer.reset()
	end := clientv3.GetPrefixRangeEnd(t.root)
	key, limit, revision := t.root, int64(firstPage), int64(0)
	for {
		page, err := t.annexEtcd.Get(ctx, key, clientv3.WithRange(end), clientv3.WithRev(revision), clientv3.WithLimit(limit))
		if err != nil {
			return fmt.Errorf("read the keys below %s: %w", t.root, err)
		}
		if revision == 0 {
			revision = page.Header.GetRevision()
		}
		size := 0
		for _, kv := range page.Kvs {
			if isObject(t.root, kv.Key) {
				fresh.count(kv.Key, t.sizer.put(kv.Key, kv.Value))
			}
			size += len(kv.Key) + len(kv.Value)
		}
		if !page.More || len(page.Kvs) == 0 {
			break
		}
		key = string(page.Kvs[len(page.Kvs)-1].Key) + "\x00"
		limit = nextLimit(len(page.Kvs), size)
	}
	t.replace(fresh, revision)
	return nil
}

// nextLimit aims at pageBytes, but never far beyond what was seen to be small.
func nextLimit(objects, size int) int64 {
	fit := pageBytes / max(1, size/objects)
	return int64(max(1, min(fit, 2*objects, largestPage)))
}

// follow counts events from the last revision on until the watch ends, and
// reports whether it delivered anything.
func (t *Tracker) follow(ctx context.Context) (followed bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	last := t.Revision()
	watch := t.annexEtcd.Watch(ctx, t.root,
		clientv3.WithPrefix(),
		clientv3.WithRev(last+1),
		clientv3.WithPrevKV(),
		clientv3.WithFragment(),
		clientv3.WithCreatedNotify(),
		clientv3.WithProgressNotify(),
	)
	for response := range watch {
		if err := response.Err(); err != nil {
			if response.CompactRevision > 0 || errors.Is(err, rpctypes.ErrCompacted) {
				return followed, errCompacted
			}
			return followed, fmt.Errorf("watch the keys below %s: %w", t.root, err)
		}
		// An etcd restored from a backup would have the watch wait in silence for
		// revisions that were counted already.
		revision := response.Header.GetRevision()
		if revision < last {
			return followed, errRevisionWentBack
		}
		switch {
		case response.IsProgressNotify():
			last = revision
			t.advance(revision)
		case len(response.Events) > 0:
			last = response.Events[len(response.Events)-1].Kv.ModRevision
			if err := t.apply(response.Events, last); err != nil {
				return followed, err
			}
		default: // the watch was made
			continue
		}
		followed = true
	}
	return followed, errWatchEnded
}
