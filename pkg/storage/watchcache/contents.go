// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package watchcache

import (
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apiserver/pkg/storage"
)

const (
	// A label is indexed for the second list with a selector of it that reads at least minScan
	// objects and returns at most one of selective.
	minScan   = 32
	selective = 8
	// maxLabels bounds the indexed labels. One that no list of the last unusedLists used is replaced.
	maxLabels   = 8
	unusedLists = 1000
	// maxUnindexed bounds the labels that are counted before they are indexed.
	maxUnindexed = 64

	// Contents of maxPast earlier resource versions are kept for clients that read page after
	// page, for at most maxChanges changes.
	maxPast    = 8
	maxChanges = 10_000
)

// contents has the objects that a watch cache has read, in order, so that lists read only objects that they
// return. It is as new as the watch cache, or newer by events that this has not processed yet.
type contents struct {
	// fields are indexed always, labels when lists need them.
	fields []string
	// account receives the number of records in indexes of labels.
	account func(records int)

	mu sync.Mutex
	// now is nil before all objects are read, and filling while they are.
	now, filling *version
	// past has previous contents, the oldest first.
	past []past
	// changes counts changes, and lists those with labels.
	changes, lists uint64
	// unindexed counts the lists that needed a label without an index, by label. used has the number
	// of the last list that used the index of a label.
	unindexed map[string]int
	used      map[string]uint64
}

// version has all objects, and indexes of them by upstream's names of indexes.
type version struct {
	all     *ordered
	indexes map[string]*ordered
	// The objects are the same at all resource versions from changed to revision.
	changed, revision uint64
	// building has the changes since an index is being built, or nil.
	building *[]change
}

type change struct{ previous, next *record }

// past has the objects of all resource versions from changed to revision.
type past struct {
	all               view
	changed, revision uint64
	// changes is their number at the time.
	changes uint64
}

func newContents(fields []string, account func(records int)) *contents {
	return &contents{fields: fields, account: account, unindexed: map[string]int{}, used: map[string]uint64{}}
}

func everything(*record) (string, bool) { return "", true }

func byLabel(label string) valueFunc {
	return func(r *record) (string, bool) {
		value, found := r.labels[label]
		return value, found
	}
}

func byField(field string) valueFunc {
	return func(r *record) (string, bool) { return r.fields[field], true }
}

// restart begins to read all objects, into what it returns.
func (c *contents) restart() *version {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.filling = &version{all: newOrdered(everything), indexes: map[string]*ordered{}}
	for _, field := range c.fields {
		c.filling.indexes[storage.FieldIndex(field)] = newOrdered(byField(field))
	}
	for label := range c.used {
		c.filling.indexes[storage.LabelIndex(label)] = newOrdered(byLabel(label))
	}
	return c.filling
}

// filled begins to serve the objects that were read, as of a resource version.
func (c *contents) filled(read *version, revision uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.filling != read {
		return
	}
	c.now, c.filling, c.past = c.filling, nil, nil
	c.now.changed, c.now.revision = revision, revision
	c.accountLabels()
}

// invalidate stops serving until all objects are read again.
func (c *contents) invalidate() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now, c.past = nil, nil
}

// put adds or replaces an object. It is one of all objects that are being read into a version, or
// with nil an event. Older events are known: a watch begins again with what the watch cache has not
// processed.
func (c *contents) put(r *record, read *version) {
	c.apply(read, r.revision, func(v *version) change { return change{v.put(r), r} })
}

// remove removes the object with a key, as of a resource version.
func (c *contents) remove(key string, revision uint64, read *version) {
	c.apply(read, revision, func(v *version) change { return change{v.remove(key), nil} })
}

func (c *contents) apply(read *version, revision uint64, apply func(*version) change) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case read != nil && read == c.filling:
		apply(read)
		return
	case read != nil || c.now == nil || revision < c.now.revision:
		return
	}
	applied := apply(c.now)
	c.now.changed, c.now.revision = revision, revision
	if c.now.building != nil {
		*c.now.building = append(*c.now.building, applied)
	}
	c.changes++
	c.past = slices.DeleteFunc(c.past, func(p past) bool { return c.changes-p.changes > maxChanges })
	c.accountLabels()
}

// bookmark notes that nothing has changed until a resource version.
func (c *contents) bookmark(revision uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.now != nil {
		c.now.revision = max(c.now.revision, revision)
	}
}

func (v *version) put(r *record) (previous *record) {
	previous = v.all.put(r)
	for _, index := range v.indexes {
		index.replace(previous, r)
	}
	return previous
}

func (v *version) remove(key string) (previous *record) {
	previous = v.all.remove(&record{key: key})
	if previous != nil {
		for _, index := range v.indexes {
			index.remove(previous)
		}
	}
	return previous
}

// accountLabels requires c.mu.
func (c *contents) accountLabels() {
	records := 0
	for label := range c.used {
		if index := c.now.indexes[storage.LabelIndex(label)]; index != nil {
			records += index.count
		}
	}
	c.account(records)
}

// revision returns the resource version of the contents, or 0 if there are none.
func (c *contents) revision() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.now == nil {
		return 0
	}
	return c.now.revision
}

// selected is a part of the contents that has all objects that a predicate selects.
type selected struct {
	all      view
	revision uint64
	// index is the name of the index that indexed is a view of, for a value. Without one it is all.
	index, value string
	indexed      view
	past         past
}

// selectAt returns the contents of a resource version, or with 0 the current ones. It returns false
// if they are not known.
func (c *contents) selectAt(revision uint64, predicate *storage.SelectionPredicate, prefix string) (selected, bool) {
	wanted := c.required(predicate) // may be long, so before the lock
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.now == nil || revision > c.now.revision {
		return selected{}, false
	}
	if revision == 0 {
		revision = c.now.revision
	}
	if revision < c.now.changed {
		i := slices.IndexFunc(c.past, func(p past) bool { return p.changed <= revision && revision <= p.revision })
		if i < 0 {
			return selected{}, false
		}
		return selected{all: c.past[i].all, revision: revision, indexed: c.past[i].all, past: c.past[i]}, true
	}
	found := selected{all: c.now.all.snapshot(), revision: revision}
	found.past = past{found.all, c.now.changed, revision, c.changes}
	found.indexed = found.all
	if index := c.bestIndex(wanted, prefix, &found); index != nil {
		found.indexed = index.snapshot()
	}
	return found, true
}

// required has the values that fields and labels of all selected objects have.
type required struct{ fields, labels map[string]string }

func (c *contents) required(predicate *storage.SelectionPredicate) required {
	has := required{fields: map[string]string{}, labels: requiredLabels(predicate.Label)}
	for _, field := range c.fields {
		if predicate.Field == nil {
			break
		}
		if value, ok := predicate.Field.RequiresExactMatch(field); ok {
			has.fields[field] = value
		}
	}
	return has
}

// requiredLabels returns the labels that must have a value.
func requiredLabels(selector labels.Selector) map[string]string {
	if selector == nil || selector.Empty() {
		return nil
	}
	required := map[string]string{}
	requirements, _ := selector.Requirements()
	for i := range requirements {
		switch r := &requirements[i]; r.Operator() {
		case selection.Equals, selection.DoubleEquals, selection.In:
			if values := r.ValuesUnsorted(); len(values) == 1 {
				required[r.Key()] = values[0]
			}
		}
	}
	return required
}

// bestIndex returns the index in which the fewest objects have a required value, or nil. It
// requires c.mu.
func (c *contents) bestIndex(wanted required, prefix string, found *selected) (best *ordered) {
	fewest := 0
	consider := func(name, value string) {
		index := c.now.indexes[name]
		if index == nil {
			return
		}
		if count := index.between(index.limits(value, prefix, prefix)); best == nil || count < fewest {
			best, fewest, found.index, found.value = index, count, name, value
		}
	}
	for field, value := range wanted.fields {
		consider(storage.FieldIndex(field), value)
	}
	if wanted.labels == nil {
		return best
	}
	c.lists++
	for label := range c.used {
		if value, ok := wanted.labels[label]; ok {
			c.used[label] = c.lists
			consider(storage.LabelIndex(label), value)
		}
	}
	return best
}

// keep keeps contents from which a client has got a page.
func (c *contents) keep(read past) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.now == nil {
		return
	}
	for i := range c.past {
		if p := &c.past[i]; p.changed == read.changed {
			p.revision = max(p.revision, read.revision)
			return
		}
	}
	c.past = append(c.past, read)
	c.past = c.past[max(0, len(c.past)-maxPast):]
}

// scanned is called after a list that had to read many objects to select some.
func (c *contents) scanned(predicate *storage.SelectionPredicate, read, selected int) {
	if read < minScan || selected*selective > read {
		return
	}
	considered := 0
	for label := range requiredLabels(predicate.Label) {
		if c.wantsIndex(label) {
			c.addIndex(label)
			return
		}
		if considered++; considered == maxLabels {
			return
		}
	}
}

// wantsIndex counts a list that needed a label, and reports whether the label is to be indexed.
func (c *contents) wantsIndex(label string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, has := c.used[label]; has || c.now == nil || c.now.building != nil {
		return false
	}
	if len(c.unindexed) >= maxUnindexed {
		clear(c.unindexed)
	}
	if c.unindexed[label]++; c.unindexed[label] < 2 {
		return false
	}
	if len(c.used) < maxLabels {
		return true
	}
	for other, last := range c.used {
		if c.lists-last > unusedLists {
			delete(c.used, other)
			delete(c.now.indexes, storage.LabelIndex(other))
			return true
		}
	}
	return false
}

// addIndex adds the index of a label. Changes and lists go on meanwhile.
func (c *contents) addIndex(label string) {
	c.mu.Lock()
	now := c.now
	if now == nil || now.building != nil {
		c.mu.Unlock()
		return
	}
	changes := []change{}
	now.building = &changes
	objects := now.all.snapshot()
	c.mu.Unlock()
	index := indexOf(objects, byLabel(label))
	c.mu.Lock()
	defer c.mu.Unlock()
	now.building = nil
	for _, change := range changes {
		if change.next != nil {
			index.replace(change.previous, change.next)
		} else if change.previous != nil {
			index.remove(change.previous)
		}
	}
	if c.now == now {
		delete(c.unindexed, label)
		c.used[label] = c.lists
		now.indexes[storage.LabelIndex(label)] = index
		c.accountLabels()
	}
}

// indexOf returns an index of all objects.
func indexOf(objects view, value valueFunc) *ordered {
	of := map[string][]*record{}
	for r := range objects.records(position{}, position{block: len(objects.blocks)}) {
		if has, found := value(r); found {
			of[has] = append(of[has], r)
		}
	}
	index := newOrdered(value)
	values := make([]string, 0, len(of))
	for has := range of {
		values = append(values, has)
	}
	slices.SortFunc(values, strings.Compare)
	for _, has := range values {
		for _, r := range of[has] {
			index.put(r)
		}
	}
	return index
}
