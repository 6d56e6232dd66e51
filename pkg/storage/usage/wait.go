// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"context"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// askAfter is how long WaitFor waits for etcd to tell of a revision by itself. It
// does so of writes below the prefix, at once, and must be asked about others.
const askAfter = 100 * time.Millisecond

// WaitFor returns when the usage takes in every write up to a revision of etcd, or
// with an error when ctx is done before.
func (t *Tracker) WaitFor(ctx context.Context, revision int64) error {
	var asking *time.Ticker
	var ask <-chan time.Time // nil, as it mostly is not needed
	for {
		moved := t.waitBelow(revision)
		if moved == nil {
			return nil
		}
		if asking == nil {
			asking = time.NewTicker(askAfter)
			defer asking.Stop()
			ask = asking.C
		}
		select {
		case <-moved:
		case <-ask:
			// The same stream as the watch's, which is one for each kind of context.
			// What fails here ends the watch too, which is made again.
			_ = t.annexEtcd.RequestProgress(clientv3.WithRequireLeader(ctx))
		case <-ctx.Done():
			return fmt.Errorf("wait for the usage below %s at revision %d, it is known at %d: %w", t.root, revision, t.Revision(), context.Cause(ctx))
		}
	}
}

// waitBelow returns what is closed when the revision changes, or nil if there is
// nothing to wait for.
func (t *Tracker) waitBelow(revision int64) <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.revision >= revision {
		return nil
	}
	if t.moved == nil {
		t.moved = make(chan struct{})
	}
	return t.moved
}
