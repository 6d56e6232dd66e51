// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/annex-dev/annex/pkg/storage/canonicaljson"
)

// maxLookups bounds the bytes that are read to find which managers own the fields that changed.
const maxLookups = 4 << 20

// maxEntries is the number of managers above which upstream merges old ones.
const maxEntries = 10

// entry is an entry of managed fields. All values are JSON, without quotes except for operation and subresource.
type entry struct{ manager, operation, subresource, timestamp, fields string }

// managedFields gives the fields that differ to the manager of the write. It returns the JSON of the managed fields, which
// is empty if none are left.
func (u *update) managedFields(now time.Time) (string, error) {
	current, d := u.metadata.get("managedFields"), &u.diff
	var entries []*entry
	var err error
	if !u.isNew() {
		entries, err = u.entriesOf(current)
	}
	fields := len(d.changed) + len(d.removed)
	if err == nil && fields*len(current) > maxLookups {
		err = errManagedFields
	}
	own := slices.IndexFunc(entries, func(e *entry) bool { return e.isOf(u.write) })
	if err == nil && u.write.Apply {
		err = u.checkOwners(entries, own)
	}
	if err != nil || fields == 0 && (!u.write.Apply || entries[own].fields == u.applies) {
		return current, err
	}
	if own < 0 && len(d.changed) > 0 {
		own = len(entries)
		entries = append(entries, newEntry(u.write))
	}
	for i, e := range entries {
		if i == own && u.write.Apply {
			e.fields = u.applies
			continue
		}
		if err := e.apply(d, i == own); err != nil {
			return "", err
		}
	}
	if len(d.changed) > 0 {
		entries[own].timestamp = now.UTC().Format(time.RFC3339)
	}
	if len(entries) > maxEntries {
		return "", errManagedFields
	}
	return u.encode(slices.DeleteFunc(entries, func(e *entry) bool { return e.fields == noFields })), nil
}

// entriesOf reads managed fields. It returns an error for those that upstream would change before it uses them.
func (s *Schema) entriesOf(text string) ([]*entry, error) {
	items := itemsOf(text)
	if text == "" || len(items) == 0 {
		return nil, errManagedFields // upstream does not begin to track an object with an update
	}
	entries := make([]*entry, 0, len(items)+1)
	for _, item := range items {
		e := &entry{}
		for _, m := range membersOf(item) {
			switch m.key {
			case "manager":
				e.manager = unquoted(m.value)
			case "operation":
				e.operation = m.value
			case "subresource":
				e.subresource = m.value
			case "time":
				e.timestamp = unquoted(m.value)
			case "fieldsV1":
				e.fields = m.value
			case "apiVersion":
				if m.value != s.apiVersion {
					return nil, errManagedFields
				}
			}
		}
		if !strings.HasPrefix(item, `{"apiVersion"`) || e.manager == "" || e.timestamp == "" || e.fields == "" || !s.knows(e.fields) {
			return nil, errManagedFields
		}
		entries = append(entries, e)
	}
	return entries, nil
}

// knows reports whether the schema has all fields of a manager, and none in atomic values: upstream replaces those.
func (s *Schema) knows(fields string) bool {
	for _, m := range membersOf(fields) {
		if m.key == "f:metadata" || m.key == "." {
			continue
		}
		if !s.root.hasFields(m) {
			return false
		}
	}
	return true
}

// hasFields reports whether fields are below a place with the rule.
func (r *rule) hasFields(m member) bool {
	below := r.items
	if name, is := strings.CutPrefix(m.key, "f:"); is {
		if !r.free && (r.kinds&objects == 0 || r.atomicMap) {
			return false
		}
		below = r.child(name)
	} else if r.free || r.list == atomicList {
		return false
	}
	if below == nil {
		return false
	}
	for _, inner := range membersOf(m.value) {
		if inner.key != "." && !below.hasFields(inner) {
			return false
		}
	}
	return true
}

func unquoted(text string) string { return text[1 : len(text)-1] }

func (e *entry) isOf(w Write) bool {
	return e.operation == w.operation() && e.manager == w.manager() && e.subresource == w.subresource()
}

// operation returns the JSON of the operation that the managed fields have.
func (w Write) operation() string {
	if w.Apply {
		return `"Apply"`
	}
	return `"Update"`
}

// noFields is the JSON of no fields.
const noFields = "{}"

// newEntry returns an entry without fields.
func newEntry(w Write) *entry {
	return &entry{manager: w.manager(), operation: w.operation(), subresource: w.subresource(), fields: noFields}
}

// owns reports whether an entry has a field.
func (e *entry) owns(field path) bool {
	at := e.fields
	for _, element := range field {
		found, ok := canonicaljson.Member(at, 0, quoted(element))
		if !ok {
			return false
		}
		at = at[found.Start:found.End]
	}
	return isMember(at)
}

// quoted returns an element of a path as it is in the JSON. It is plain otherwise.
func quoted(element string) string { return strings.ReplaceAll(element, `"`, `\"`) }

// fieldSets has the fields of a diff as sets.
type fieldSets struct{ changed, removed *fieldpath.Set }

// fieldSets makes the sets once.
func (d *diff) fieldSets() (*fieldSets, error) {
	if d.sets != nil {
		return d.sets, nil
	}
	sets := &fieldSets{}
	var err error
	if sets.changed, err = newFieldSet(d.changed); err != nil {
		return nil, err
	}
	if sets.removed, err = newFieldSet(d.removed); err != nil {
		return nil, err
	}
	d.sets = sets
	return sets, nil
}

// fieldsAt returns the fields of paths below a depth, as managed fields have them. Those with the same beginning follow each
// other.
func fieldsAt(depth int, paths []path) members {
	var all members
	for len(paths) > 0 {
		element := paths[0][depth]
		end := slices.IndexFunc(paths, func(p path) bool { return p[depth] != element })
		if end < 0 {
			end = len(paths)
		}
		isItself := func(p path) bool { return len(p) == depth+1 }
		owned := slices.ContainsFunc(paths[:end], isItself)
		below := slices.DeleteFunc(slices.Clone(paths[:end]), isItself)
		all = append(all, newField(element, fieldsAt(depth+1, below), owned))
		paths = paths[end:]
	}
	return all
}

func newFieldSet(fields []path) (*fieldpath.Set, error) {
	set := fieldpath.NewSet()
	for _, field := range fields {
		elements := make(fieldpath.Path, 0, len(field))
		for _, text := range field {
			element, err := fieldpath.DeserializePathElement(text)
			if err != nil {
				return nil, fmt.Errorf("read the element %s of a field path: %w", text, err)
			}
			elements = append(elements, element)
		}
		set.Insert(elements)
	}
	return set, nil
}

// apply removes the fields of a diff from an entry, or gives it those that were changed.
func (e *entry) apply(d *diff, gains bool) error {
	if gains && e.fields == noFields {
		e.fields = string(fieldsAt(0, d.changed).encode())
		return nil
	}
	owns := func(field path) bool { return e.owns(field) }
	lacks := func(field path) bool { return !e.owns(field) }
	touched := slices.ContainsFunc(d.removed, owns)
	if gains {
		touched = touched || slices.ContainsFunc(d.changed, lacks)
	} else {
		touched = touched || slices.ContainsFunc(d.changed, owns)
	}
	if !touched {
		return nil
	}
	changes, err := d.fieldSets()
	if err != nil {
		return err
	}
	set := fieldpath.NewSet()
	if err := set.FromJSON(strings.NewReader(e.fields)); err != nil {
		return fmt.Errorf("read the fields of manager %s: %w", e.manager, err)
	}
	set = set.Difference(changes.removed)
	if gains {
		set = set.Union(changes.changed)
	} else {
		set = set.Difference(changes.changed)
	}
	encoded, err := set.ToJSON()
	if err != nil {
		return fmt.Errorf("write the fields of manager %s: %w", e.manager, err)
	}
	fields, ok := canonicaljson.Append(nil, encoded)
	if !ok {
		return errManagedFields
	}
	e.fields = string(fields)
	return nil
}

// encode returns the JSON of entries, in upstream's order.
func (s *Schema) encode(entries []*entry) string {
	if len(entries) == 0 {
		return ""
	}
	slices.SortFunc(entries, func(a, b *entry) int {
		return cmp.Or(strings.Compare(a.operation, b.operation), strings.Compare(a.timestamp, b.timestamp),
			canonicaljson.CompareKeys([]byte(a.manager), []byte(b.manager)), strings.Compare(a.subresource, b.subresource))
	})
	size := len("[]")
	for _, e := range entries {
		size += len(s.apiVersion) + len(e.manager) + len(e.operation) + len(e.subresource) + len(e.timestamp) + len(e.fields) + maxEntryNames
	}
	text := make([]byte, 0, size)
	separator := "["
	for _, e := range entries {
		for _, part := range []string{
			separator, `{"apiVersion":`, s.apiVersion, `,"fieldsType":"FieldsV1","fieldsV1":`, e.fields, `,"manager":"`, e.manager, `","operation":`, e.operation,
		} {
			text = append(text, part...)
		}
		separator = ","
		if e.subresource != "" {
			text = append(append(text, `,"subresource":`...), e.subresource...)
		}
		text = append(append(append(text, `,"time":"`...), e.timestamp...), `"}`...)
	}
	return canonicaljson.StringOf(append(text, ']'))
}

// maxEntryNames is the length of what each entry has besides its values.
const maxEntryNames = 128
