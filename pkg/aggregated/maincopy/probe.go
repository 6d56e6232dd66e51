// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package maincopy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"golang.org/x/sync/errgroup"
)

const (
	// probeTimeout bounds a probe, whose bookmark comes two seconds before.
	probeTimeout = 3 * time.Second
	// progressInterval is the time between probes while no caller waits for progress. API servers that do not
	// request progress from etcd may send bookmarks with revisions so old that etcd compacts them.
	progressInterval = 30 * time.Second
	// probePause is after a probe that has failed.
	probePause = time.Second
)

type result struct {
	// last is the revision of the last change that it has seen, or the one that it began after.
	last int64
	// complete is the revision of the bookmark. There are no changes between the two.
	complete int64
}

var errNoBookmark = errors.New("it ended without a bookmark")

// probe watches from after a revision to the first bookmark.
func (s *Source) probe(ctx context.Context, after int64) (result, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*probeTimeout)
	defer cancel()
	stream, err := s.open(ctx, after, probeTimeout)
	if err != nil {
		return result{}, err
	}
	defer stream.close()
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		// This read makes the API server's cache request etcd's revision, which the bookmark then has.
		_, err := s.Revision(ctx)
		return err
	})
	found := result{last: after}
	group.Go(func() error {
		for {
			events, err := stream.next()
			switch {
			case errors.Is(err, io.EOF):
				return fmt.Errorf("probe %s of the main cluster: %w", s.resource.GroupResource(), errNoBookmark)
			case err != nil:
				return err
			case len(events.Changes) == 0:
				found.complete = max(found.last, events.Complete)
				return nil
			}
			found.last = events.Complete
		}
	})
	err = group.Wait()
	return found, err
}
