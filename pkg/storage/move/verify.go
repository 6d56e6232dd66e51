// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package move

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
)

const (
	// namedDifferences is how many objects an error names.
	namedDifferences = 10
	// verifyAttempts and verifyPause bound the wait for a Mover that records a revision that is not
	// compacted.
	verifyAttempts = 60
	verifyPause    = time.Second
)

// DifferentError names objects that differ between the ends.
type DifferentError struct {
	// Objects are the first of them, and Count the number of all.
	Objects []string
	Count   int64
}

// Error implements error.
func (e *DifferentError) Error() string {
	return fmt.Sprintf("%d objects differ between the Stores, such as %s", e.Count, strings.Join(e.Objects, ", "))
}

// Verify compares every object of both ends, each page as it was at a recorded revision of the
// source and when that was recorded. Another call follows the source meanwhile. It returns a
// *DifferentError if objects differ.
func (c *copier) Verify(ctx context.Context) error {
	c.compared.Store(0)
	different := &DifferentError{}
	cursor, limit := "", int64(firstPage)
	for attempt := 0; ; {
		p, err := c.readVerified(ctx, cursor, limit)
		if errors.Is(err, ErrCompacted) && attempt < verifyAttempts {
			attempt++
			if err := pause(ctx, verifyPause); err != nil {
				return err
			}
			continue
		}
		if err != nil {
			return err
		}
		if err := c.compare(ctx, p, different); err != nil {
			return err
		}
		if p.last == "" {
			break
		}
		cursor, limit, attempt = p.last, nextLimit(p.from, limit), 0
	}
	if different.Count > 0 {
		return different
	}
	return nil
}

// readVerified reads both ends at revisions at which they have to be equal.
func (c *copier) readVerified(ctx context.Context, cursor string, limit int64) (pair, error) {
	found, err := c.to.KV.Get(ctx, c.to.record)
	if err != nil {
		return pair{}, fmt.Errorf("read the move of %s: %w", c.resource, err)
	}
	if len(found.Kvs) == 0 {
		return pair{}, ErrNotCopied
	}
	var r record
	if err := json.Unmarshal(found.Kvs[0].Value, &r); err != nil {
		return pair{}, fmt.Errorf("read %s: %w", c.to.record, err)
	}
	if r.UID != c.uid || !r.Copied {
		return pair{}, ErrNotCopied
	}
	return c.readPair(ctx, cursor, limit, r.Applied, found.Kvs[0].ModRevision)
}

func (c *copier) compare(ctx context.Context, p pair, different *DifferentError) error {
	return p.each(func(key string, from, to *Object) error {
		c.compared.Add(1)
		if from != nil && to != nil {
			source, err := c.source.Decode(ctx, *from)
			if err != nil {
				return err
			}
			if target, err := c.to.Decode(ctx, *to); err == nil && bytes.Equal(source, target) {
				return nil
			}
		}
		if different.Count++; len(different.Objects) < namedDifferences {
			different.Objects = append(different.Objects, key)
		}
		return ctx.Err()
	})
}

func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
