// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package routing

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/annex-dev/annex/pkg/storage/layer/freeze"
	"github.com/annex-dev/annex/pkg/storage/layer/revision"
)

const (
	// holdTimeout bounds the wait of a request while its resource is switched to another Store,
	// which takes a fraction of a second.
	holdTimeout = 5 * time.Second
	// A held request is repeated when a route changes, and in these intervals, which grow: a
	// move may also be abandoned.
	firstHeldPause = 10 * time.Millisecond
	maxHeldPause   = 200 * time.Millisecond
)

// hold repeats a call that was refused because the resource is being moved, until it is served by
// another backend or returned to the main cluster, for at most holdTimeout. What is refused so was not
// performed. Any other error ends it: the outcome may be unknown.
func (s *lazyBackend) hold(ctx context.Context, call func() error) error {
	var giveUp <-chan time.Time
	var since time.Time
	for pause := firstHeldPause; ; pause = min(2*pause, maxHeldPause) {
		changed := s.route.changed()
		err := call()
		var held *freeze.HeldError
		if !errors.As(err, &held) {
			return endHold(ctx, since, err)
		}
		if giveUp == nil {
			since = time.Now()
			timer := time.NewTimer(holdTimeout)
			defer timer.Stop()
			giveUp = timer.C
		}
		next := time.NewTimer(pause)
		select {
		case <-changed:
		case <-next.C:
		case <-giveUp:
			observeHeld("refused", since)
			return held
		case <-ctx.Done():
			observeHeld("canceled", since)
			return held
		}
		next.Stop()
	}
}

// endHold returns the result of a request that is not held any longer. since is zero if it never was.
func endHold(ctx context.Context, since time.Time, err error) error {
	var returned *freeze.ReturnedError
	result := "served"
	if errors.As(err, &returned) {
		result, err = "returned", returned // a wrapped one would be a 500
	}
	if since.IsZero() {
		return err
	}
	if returned != nil {
		repeatNow(ctx)
	}
	observeHeld(result, since)
	return err
}

// openState returns the state of a resource in the Store that serves it. It fails with a
// freeze.HeldError or freeze.ReturnedError if the resource is closed there.
//
// A Store stays closed for the HostedResource of a move. One that was created since, with the
// definition, may be placed there again, and opens it.
func (c storageConfig) openState(ctx context.Context, store Store, at location) (revision.State, error) {
	kv, prefix := store.Client().KV, store.Prefix()
	state, err := revision.LoadState(ctx, kv, prefix, c.GroupResource)
	if err != nil || !state.Closed {
		return state, err
	}
	if state.ClosedFor == at.hosted {
		return revision.State{}, freeze.Refusal(c.GroupResource, state)
	}
	// The informer may lag behind the move.
	if placed, err := c.placed(ctx, at); err != nil {
		return revision.State{}, err
	} else if !placed {
		return revision.State{}, freeze.Refusal(c.GroupResource, revision.State{Closed: true})
	}
	open, err := revision.Open(prefix, c.GroupResource, state, state.Offset)
	if err != nil {
		return revision.State{}, err
	}
	// If the condition does not hold, another replica has opened it.
	if _, err := kv.Txn(ctx).If(revision.Unchanged(prefix, c.GroupResource, state)).Then(open).Commit(); err != nil {
		return revision.State{}, fmt.Errorf("open %s: %w", c.GroupResource, err)
	}
	state, err = revision.LoadState(ctx, kv, prefix, c.GroupResource)
	if err == nil && state.Closed {
		err = freeze.Refusal(c.GroupResource, state)
	}
	return state, err
}

// isPlaced reports whether the HostedResource of a location places its resource there, by the
// server.
func (r *routes) isPlaced(ctx context.Context, resource string, at location) (bool, error) {
	hosted, err := r.live(ctx, resource)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("read hosted resource %s: %w", resource, err)
	}
	return hosted.UID == at.hosted && hosted.Spec.StoreName == at.store, nil
}
