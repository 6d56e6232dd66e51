// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package move

import (
	"cmp"
	"context"
	"fmt"

	"golang.org/x/time/rate"
)

// A page is in memory at once, and its size is unknown before, so pages start small and adapt to
// the size of the objects. By default etcd accepts 128 operations per transaction and 1.5 MiB per
// request.
const (
	firstPage    = 8
	largestPage  = 1000
	pageBytes    = 4 << 20
	batchObjects = 100
	batchBytes   = 1 << 20
)

// change is a put or a deletion of an object.
type change struct {
	// Object is the one of the source, decoded. A deletion has only the key.
	Object
	put bool
	// to is the object of the target when the two were compared, nil if that is not known.
	to *Object
}

// batch collects changes that are written together.
type batch struct {
	*loop
	changes []change
	// index has the place of each key: etcd accepts one operation per key in a transaction.
	index map[string]int
	size  int
	page  int64 // the limit of the next page
}

// complete records that all changes of keys up to the cursor are in a batch, up to a revision.
func (l *loop) complete(revision int64) { l.record.Applied = max(l.record.Applied, revision) }

// add adds a change. Later changes of a key replace earlier ones.
func (b *batch) add(ctx context.Context, c change) error {
	if at, found := b.index[c.Key]; found {
		b.size += len(c.Value) - len(b.changes[at].Value)
		b.changes[at] = c
		return nil
	}
	if len(b.changes) == batchObjects || len(b.changes) > 0 && b.size+len(c.Value) > batchBytes {
		if err := b.flush(ctx, false); err != nil {
			return err
		}
	}
	if b.index == nil {
		b.index = map[string]int{}
	}
	b.index[c.Key] = len(b.changes)
	b.changes, b.size = append(b.changes, c), b.size+len(c.Value)
	return nil
}

// flush writes the changes with the record. Without changes it writes a record that changed if always is set.
func (b *batch) flush(ctx context.Context, always bool) error {
	if len(b.changes) == 0 && (!always || b.record == b.saved) {
		return nil
	}
	if err := b.save(ctx, b.changes); err != nil {
		return err
	}
	clear(b.changes)
	clear(b.index)
	b.changes, b.size = b.changes[:0], 0
	return nil
}

// pair is a range of keys on both sides, each at a revision.
type pair struct {
	from, to []Object
	// last is the last key of the range, empty if it ends with the last object.
	last string
}

// replica is a copy of the objects of a Source, as a loop and a comparison need it.
type replica interface {
	// Page is like Source.Page. A revision of 0 is the present.
	Page(ctx context.Context, after string, limit, revision int64) (objects []Object, more bool, err error)
	// Equal reports whether an object, as it is decoded, has the copy to.
	Equal(ctx context.Context, from, to Object) (bool, error)
}

// sides are a Source and its copy.
type sides struct {
	source Source
	target replica
	pace   *Pace
}

// page reads the objects of both sides after a key. A revision of 0 is the present.
func (s sides) page(ctx context.Context, after string, limit, ofFrom, ofTo int64) (pair, error) {
	var from []Object
	var moreFrom bool
	err := s.pace.Do(ctx, func() (err error) {
		from, moreFrom, err = s.source.Page(ctx, after, limit, ofFrom)
		return err
	})
	if err != nil {
		return pair{}, err
	}
	to, moreTo, err := s.target.Page(ctx, after, limit, ofTo)
	if err != nil {
		return pair{}, err
	}
	p := pair{from: from, to: to}
	if moreFrom {
		p.last = from[len(from)-1].Key
	}
	if moreTo {
		if last := to[len(to)-1].Key; p.last == "" || last < p.last {
			p.last = last
		}
	}
	if p.last != "" {
		p.from, p.to = until(p.from, p.last), until(p.to, p.last)
	}
	return p, nil
}

// compare returns an object of the source with its decoded value, and whether it has the copy to, which may be nil.
func (s sides) compare(ctx context.Context, from Object, to *Object) (decoded Object, equal bool, err error) {
	decoded = from
	if decoded.Value, err = s.source.Decode(ctx, from); err == nil && to != nil {
		equal, err = s.target.Equal(ctx, decoded, *to)
	}
	return decoded, equal, err
}

func until(objects []Object, last string) []Object {
	for len(objects) > 0 && objects[len(objects)-1].Key > last {
		objects = objects[:len(objects)-1]
	}
	return objects
}

// each calls do with each object of a pair in order, nil where a side has none.
func (p pair) each(do func(key string, from, to *Object) error) error {
	from, to := p.from, p.to
	for len(from) > 0 || len(to) > 0 {
		var f, t *Object
		switch {
		case len(to) == 0 || len(from) > 0 && from[0].Key < to[0].Key:
			f, from = &from[0], from[1:]
		case len(from) == 0 || from[0].Key > to[0].Key:
			t, to = &to[0], to[1:]
		default:
			f, t, from, to = &from[0], &to[0], from[1:], to[1:]
		}
		key := cmp.Or(f, t).Key
		if err := do(key, f, t); err != nil {
			return err
		}
	}
	return nil
}

// nextLimit aims at pageBytes on the side with the larger objects, and at most doubles the page.
func (p pair) nextLimit(limit int64) int64 {
	next := min(2*limit, largestPage)
	for _, objects := range [][]Object{p.from, p.to} {
		size := 0
		for _, o := range objects {
			size += len(o.Value)
		}
		next = min(next, int64(pageBytes/max(1, size/max(1, len(objects)))))
	}
	return max(1, next)
}

// eachPage calls read for consecutive ranges of all keys.
func eachPage(read func(cursor string, limit int64) (pair, error)) error {
	for cursor, limit := "", int64(firstPage); ; {
		p, err := read(cursor, limit)
		if err != nil || p.last == "" {
			return err
		}
		cursor, limit = p.last, p.nextLimit(limit)
	}
}

// copyPage copies the page after the cursor, as it was at the applied revision, and moves the cursor.
func (l *loop) copyPage(ctx context.Context, b *batch) error {
	if b.page == 0 {
		b.page = firstPage
	}
	page, err := l.page(ctx, l.record.Cursor, b.page, l.record.Applied, 0)
	if err != nil {
		return err
	}
	b.page = page.nextLimit(b.page)
	if l.limit != nil {
		// The events of the watch wait for the page.
		b.page = max(1, min(b.page, int64(l.limit.Limit())))
	}
	err = page.each(func(key string, from, to *Object) (err error) {
		c, equal := change{Object: Object{Key: key}}, false
		if from != nil {
			c = change{put: true, to: to}
			if c.Object, equal, err = l.compare(ctx, *from, to); err == nil && !equal {
				err = atRate(ctx, l.limit, 1)
			}
		}
		if err == nil && !equal {
			err = b.add(ctx, c)
		}
		if err != nil {
			return err
		}
		// It is recorded with the next batch.
		l.record.Cursor = key
		if c.put {
			l.record.Objects, l.record.Bytes = l.record.Objects+1, l.record.Bytes+int64(len(c.Value))
		}
		return nil
	})
	if err != nil {
		return err
	}
	l.record.Cursor, l.record.Copied = page.last, page.last == ""
	return b.flush(ctx, true)
}

// atRate waits for the rate of a move, which may have none.
func atRate(ctx context.Context, limit *rate.Limiter, n int) error {
	for i := 0; i < n && limit != nil; i++ {
		if err := limit.Wait(ctx); err != nil {
			return fmt.Errorf("wait for the rate of the move: %w", err)
		}
	}
	return nil
}
