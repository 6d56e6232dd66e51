// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"context"
	"errors"
	"fmt"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/annex-dev/annex/pkg/storage/etcd/etcdkv"
)

var (
	// errReload marks errors after which all keys are read again.
	errReload           = errors.New("all keys have to be read again")
	errNoPrevious       = fmt.Errorf("%w: an event lacks the previous value", errReload)
	errRevisionWentBack = fmt.Errorf("%w: the revision of etcd is lower than before", errReload)
	errUnknownSize      = fmt.Errorf("%w: the size of a deleted value is no longer known", errReload)
	errCompacted        = fmt.Errorf("%w: the revision was compacted", errReload)
	errWatchEnded       = errors.New("the watch ended")
)

// load reads every key at one revision.
func (t *Tracker) load(ctx context.Context) error {
	fresh := newCounts(t.root)
	t.sizer.reset()
	end := clientv3.GetPrefixRangeEnd(t.root)
	revision := int64(0)
	for page, err := range etcdkv.Pages(ctx, t.annexEtcd, t.root, end) {
		if err != nil {
			return fmt.Errorf("read the keys below %s: %w", t.root, err)
		}
		if revision == 0 {
			revision = page.Header.GetRevision()
		}
		for _, kv := range page.Kvs {
			if isObject(t.root, kv.Key) {
				fresh.count(kv.Key, t.sizer.put(kv.Key, kv.Value))
			}
		}
	}
	t.replace(fresh, revision)
	return nil
}

// follow counts events from the last revision until the watch ends, and reports whether
// it received any.
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
		// On an etcd restored from a backup the watch would silently wait for revisions
		// that were counted already.
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
		default: // the watch was created
			continue
		}
		followed = true
	}
	return followed, errWatchEnded
}
