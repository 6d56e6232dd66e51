// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package watchcache

import (
	"cmp"
	"iter"
	"slices"
	"sort"
	"strings"
)

// maxBlock bounds the records that a change moves, or copies if a view has them.
const maxBlock = 512

// valueFunc returns the value that a record is found by, or false if it has none.
type valueFunc func(*record) (value string, found bool)

// ordered has records ordered by their values, then keys. Views of it are cheap: what they have is
// copied when it changes.
type ordered struct {
	view
	count int
	// views is the number of views that were made. The last one has the slice of blocks while
	// shared is set.
	views  uint64
	shared bool
}

// view has the records of an ordered at a time.
type view struct {
	value  valueFunc
	blocks []*block
}

// block has some records, at least one.
type block struct {
	records []*record
	// since is the number of views before it was created. Later ones may have it.
	since uint64
}

// position is the place of a record, or the one after the last.
type position struct{ block, offset int }

func newOrdered(value valueFunc) *ordered { return &ordered{view: view{value: value}} }

// snapshot returns a view. Changes must not be concurrent.
func (o *ordered) snapshot() view {
	o.views++
	o.shared = true
	return o.view
}

// ownBlocks makes the slice of blocks changeable.
func (o *ordered) ownBlocks() {
	if o.shared {
		o.blocks = slices.Clone(o.blocks)
		o.shared = false
	}
}

// own returns a block that can be changed.
func (o *ordered) own(i int) *block {
	o.ownBlocks()
	if o.blocks[i].since < o.views {
		o.blocks[i] = &block{slices.Clone(o.blocks[i].records), o.views}
	}
	return o.blocks[i]
}

// put adds a record, and returns the one with the same value and key that it replaces, or nil.
func (o *ordered) put(r *record) (replaced *record) {
	value, found := o.value(r)
	if !found {
		return nil
	}
	at, exists := o.search(value, r.key)
	if exists {
		c := o.own(at.block)
		replaced, c.records[at.offset] = c.records[at.offset], r
		return replaced
	}
	o.count++
	if at.block == len(o.blocks) { // after all
		if last := len(o.blocks) - 1; last >= 0 && len(o.blocks[last].records) < maxBlock {
			c := o.own(last)
			c.records = append(c.records, r)
			return nil
		}
		o.ownBlocks()
		o.blocks = append(o.blocks, &block{[]*record{r}, o.views})
		return nil
	}
	c := o.own(at.block)
	c.records = slices.Insert(c.records, at.offset, r)
	if half := len(c.records) / 2; half >= maxBlock/2 && len(c.records) > maxBlock {
		o.blocks = slices.Insert(o.blocks, at.block+1, &block{slices.Clone(c.records[half:]), o.views})
		c.records = slices.Clip(c.records[:half:half])
	}
	return nil
}

// remove removes the record with the value and key of one, and returns it, or nil.
func (o *ordered) remove(like *record) (removed *record) {
	value, found := o.value(like)
	if !found {
		return nil
	}
	at, exists := o.search(value, like.key)
	if !exists {
		return nil
	}
	o.count--
	c := o.own(at.block)
	removed = c.records[at.offset]
	c.records = slices.Delete(c.records, at.offset, at.offset+1)
	next := at.block + 1
	switch {
	case len(c.records) == 0:
		o.blocks = slices.Delete(o.blocks, at.block, next)
	case next < len(o.blocks) && len(c.records)+len(o.blocks[next].records) <= maxBlock/2:
		c.records = append(c.records, o.blocks[next].records...)
		o.blocks = slices.Delete(o.blocks, next, next+1)
	}
	return removed
}

// replace puts a record in place of a previous one, which may be nil and have another value.
func (o *ordered) replace(previous, r *record) {
	if previous != nil {
		before, had := o.value(previous)
		if after, has := o.value(r); had && (!has || after != before) {
			o.remove(previous)
		}
	}
	o.put(r)
}

// search returns the position of a value and key, and whether a record has them.
func (o *ordered) search(value, key string) (at position, exists bool) {
	at = o.find(value, func(r *record) bool { return r.key >= key })
	if at.block == len(o.blocks) {
		return at, false
	}
	found := o.blocks[at.block].records[at.offset]
	has, _ := o.value(found)
	return at, has == value && found.key == key
}

// find returns the position of the first record that has a value and whose key reached accepts, or
// has a later value. reached accepts all keys from one on.
func (v view) find(value string, reached func(*record) bool) position {
	accept := func(r *record) bool {
		has, _ := v.value(r)
		order := cmp.Compare(has, value)
		return order > 0 || order == 0 && reached(r)
	}
	i := sort.Search(len(v.blocks), func(i int) bool {
		records := v.blocks[i].records
		return accept(records[len(records)-1])
	})
	if i == len(v.blocks) {
		return position{i, 0}
	}
	records := v.blocks[i].records
	return position{i, sort.Search(len(records), func(j int) bool { return accept(records[j]) })}
}

// limits returns the positions of the records that have a value and keys with a prefix, from a key
// on that has the prefix.
func (v view) limits(value, prefix, key string) (from, to position) {
	from = v.find(value, func(r *record) bool { return r.key >= key })
	to = v.find(value, func(r *record) bool { return r.key > prefix && !strings.HasPrefix(r.key, prefix) })
	return from, to
}

// between returns the number of records between two positions.
func (v view) between(from, to position) int {
	if from.block == to.block {
		return to.offset - from.offset
	}
	count := to.offset - from.offset
	for _, c := range v.blocks[from.block:to.block] {
		count += len(c.records)
	}
	return count
}

// records returns the records between two positions.
func (v view) records(from, to position) iter.Seq[*record] {
	return func(yield func(*record) bool) {
		for ; from.block < len(v.blocks) && from.block <= to.block; from = (position{from.block + 1, 0}) {
			records := v.blocks[from.block].records
			if from.block == to.block {
				records = records[:to.offset]
			}
			for _, r := range records[from.offset:] {
				if !yield(r) {
					return
				}
			}
		}
	}
}
