// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package move

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"
)

const (
	// namedDifferences bounds the objects that an error names.
	namedDifferences = 10
	// verifyAttempts and verifyPause bound the wait for a Mover that records a revision that is not
	// compacted.
	verifyAttempts = 60
	verifyPause    = time.Second
)

// DifferentError names objects that differ between a Source and its copy.
type DifferentError struct {
	// Objects are the first of them, and Count the number of all.
	Objects []string
	Count   int64
}

// Error implements error.
func (e *DifferentError) Error() string {
	return fmt.Sprintf("%d objects of the copy differ, such as %s", e.Count, strings.Join(e.Objects, ", "))
}

func (e *DifferentError) add(keys ...string) {
	e.Count += int64(len(keys))
	e.Objects = append(e.Objects, keys[:min(len(keys), namedDifferences-len(e.Objects))]...)
}

// Verify compares every object of both ends, each page as it was at a recorded revision of the
// source and when that was recorded. Another call follows the source meanwhile. It returns a
// *DifferentError if objects differ.
func (c *copier) Verify(ctx context.Context) error {
	return c.verify(ctx, sides{c.from, c.to, c.pace}, 0, c.recorded)
}

// recorded returns revisions at which both ends have to be equal.
func (c *copier) recorded(ctx context.Context) (ofFrom, ofTo int64, err error) {
	arrival, err := c.to.read(ctx)
	if err == nil && (arrival.UID != c.uid || !arrival.Copied) {
		err = ErrNotCopied
	}
	return arrival.Applied, arrival.modRevision, err
}

// revisions returns revisions of both sides at which to compare them.
type revisions func(ctx context.Context) (ofFrom, ofTo int64, err error)

// compared counts what Verify compares.
type compared struct{ count atomic.Int64 }

// Compared returns how many objects Verify has compared. It may be called at any time.
func (c *compared) Compared() int64 { return c.count.Load() }

// verify compares all objects of two sides. If objects of a page differ, it compares the page again, at most again
// times, because a loop may be writing them.
func (c *compared) verify(ctx context.Context, s sides, again int, at revisions) error {
	c.count.Store(0)
	different := &DifferentError{}
	err := eachPage(func(cursor string, limit int64) (pair, error) {
		p, err := s.verifyPage(ctx, cursor, limit, again, at, different)
		c.count.Add(int64(len(p.from)))
		return p, err
	})
	if err == nil && different.Count > 0 {
		err = different
	}
	return err
}

func (s sides) verifyPage(ctx context.Context, cursor string, limit int64, again int, at revisions, different *DifferentError) (pair, error) {
	first := map[string][2]int64{}
	for attempt := 0; ; attempt++ {
		var p pair
		var keys []string
		ofFrom, ofTo, err := at(ctx)
		if err == nil {
			p, err = s.page(ctx, cursor, limit, ofFrom, ofTo)
		}
		if err == nil {
			keys, err = s.differing(ctx, p, first)
		}
		switch {
		case err == nil && (len(keys) == 0 || attempt >= again || different.Count > 0):
			different.add(keys...)
			return p, nil
		case err != nil && (attempt >= verifyAttempts || !errors.Is(err, ErrCompacted)):
			return pair{}, err
		}
		if err := pause(ctx, verifyPause); err != nil {
			return pair{}, err
		}
	}
}

// differing returns the keys whose objects differ. first has the revisions at which they first did. What has changed on
// both sides since is being copied, perhaps too often to be seen when it is equal.
func (s sides) differing(ctx context.Context, p pair, first map[string][2]int64) (keys []string, err error) {
	err = p.each(func(key string, from, to *Object) error {
		var now [2]int64
		if from != nil {
			now[0] = from.Revision
		}
		if to != nil {
			now[1] = to.Revision
		}
		if from != nil && to != nil {
			if _, equal, err := s.compare(ctx, *from, to); err != nil || equal {
				return err
			}
		}
		before, seen := first[key]
		if !seen {
			first[key] = now
		}
		if !seen || now[0] == before[0] || now[1] == before[1] {
			keys = append(keys, key)
		}
		return ctx.Err()
	})
	return keys, err
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
