// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package move

import (
	"bytes"
	"cmp"
	"context"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apiserver/pkg/storage/value"
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
	key   string // below those of all objects
	plain []byte
	put   bool
}

// batch collects changes for one transaction.
type batch struct {
	*term
	changes []change
	// index has the place of each key, of which etcd accepts one operation per transaction.
	index map[string]int
	size  int
	page  int64 // the limit of the next page
}

// complete records that the batch has all changes of keys up to the cursor, up to a revision.
func (b *batch) complete(revision int64) { b.record.Applied = max(b.record.Applied, revision) }

// add adds a change. Later changes of a key replace earlier ones.
func (b *batch) add(ctx context.Context, c change) error {
	if at, found := b.index[c.key]; found {
		b.size += len(c.plain) - len(b.changes[at].plain)
		b.changes[at] = c
		return nil
	}
	if len(b.changes) == batchObjects || len(b.changes) > 0 && b.size+len(c.plain) > batchBytes {
		if err := b.flush(ctx, false); err != nil {
			return err
		}
	}
	if b.index == nil {
		b.index = map[string]int{}
	}
	b.index[c.key] = len(b.changes)
	b.changes, b.size = append(b.changes, c), b.size+len(c.plain)
	return nil
}

// flush writes the changes with the record. Without changes it writes only a record that changed,
// and only if always is set.
func (b *batch) flush(ctx context.Context, always bool) error {
	if len(b.changes) == 0 && (!always || b.record == b.saved) {
		return nil
	}
	ops := make([]clientv3.Op, 0, len(b.changes)+1)
	for _, c := range b.changes {
		key := b.to.objects + c.key
		if !c.put {
			ops = append(ops, clientv3.OpDelete(key))
			continue
		}
		encoded, err := b.to.Transformer.TransformToStorage(ctx, c.plain, value.DefaultContext(key))
		if err != nil {
			return fmt.Errorf("encode object %s of %s: %w", c.key, b.resource, err)
		}
		ops = append(ops, clientv3.OpPut(key, string(encoded)))
	}
	if err := b.save(ctx, ops...); err != nil {
		return err
	}
	clear(b.changes)
	clear(b.index)
	b.changes, b.size = b.changes[:0], 0
	return nil
}

// pair is a range of keys at both ends, each at a revision.
type pair struct {
	from, to []Object
	// last is the last key of the range, empty if it ends with the last object.
	last string
}

// readPair reads the objects of both ends after a key. A revision of 0 is the present.
func (c *copier) readPair(ctx context.Context, after string, limit, ofFrom, ofTo int64) (pair, error) {
	var from []Object
	var moreFrom bool
	err := c.pace.page(ctx, func() (err error) {
		from, moreFrom, err = c.source.Page(ctx, after, limit, ofFrom)
		return err
	})
	if err != nil {
		return pair{}, err
	}
	to, moreTo, err := c.to.Page(ctx, after, limit, ofTo)
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

func until(objects []Object, last string) []Object {
	for len(objects) > 0 && objects[len(objects)-1].Key > last {
		objects = objects[:len(objects)-1]
	}
	return objects
}

// each calls do with each object of a pair in order, nil where an end has none.
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

// nextLimit aims at pageBytes, and at most doubles the page.
func nextLimit(objects []Object, limit int64) int64 {
	size := 0
	for _, o := range objects {
		size += len(o.Value)
	}
	fit := int64(pageBytes / max(1, size/max(1, len(objects))))
	return max(1, min(fit, 2*limit, largestPage))
}

// copyPage copies the page after the cursor, as it was at the applied revision, and moves the
// cursor.
func (t *term) copyPage(ctx context.Context, b *batch) error {
	if b.page == 0 {
		b.page = firstPage
	}
	page, err := t.readPair(ctx, t.record.Cursor, b.page, t.record.Applied, 0)
	if err != nil {
		return err
	}
	b.page = nextLimit(page.from, b.page)
	if t.limit != nil {
		// The events of the watch wait for the page.
		b.page = max(1, min(b.page, int64(t.limit.Limit())))
	}
	err = page.each(func(key string, from, to *Object) error {
		if from == nil {
			return t.copyChange(ctx, b, change{key: key})
		}
		plain, err := t.source.Decode(ctx, *from)
		if err != nil {
			return err
		}
		if to != nil {
			// A value at the target that cannot be read is written anew.
			if existing, err := t.to.Decode(ctx, *to); err == nil && bytes.Equal(existing, plain) {
				t.passed(change{key: key, plain: plain, put: true})
				return nil
			}
		}
		return t.copyChange(ctx, b, change{key: key, plain: plain, put: true})
	})
	if err != nil {
		return err
	}
	t.record.Cursor, t.record.Copied = page.last, page.last == ""
	return b.flush(ctx, true)
}

// copyChange adds a change to the batch, and moves the cursor of the batches before.
func (t *term) copyChange(ctx context.Context, b *batch, c change) error {
	if t.limit != nil && c.put {
		if err := t.limit.Wait(ctx); err != nil {
			return fmt.Errorf("wait for the rate of the copy: %w", err)
		}
	}
	if err := b.add(ctx, c); err != nil {
		return err
	}
	t.passed(c)
	return nil
}

// passed moves the cursor to an object that is equal at both ends once the batch is written.
func (t *term) passed(c change) {
	t.record.Cursor = c.key
	if c.put {
		t.record.Objects, t.record.Bytes = t.record.Objects+1, t.record.Bytes+int64(len(c.plain))
	}
}
