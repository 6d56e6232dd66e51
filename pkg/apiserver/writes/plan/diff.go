// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"iter"
	"maps"
	"slices"
	"strings"

	"github.com/annex-dev/annex/pkg/storage/canonicaljson"
)

// path is the place of a field as managed fields write it: "f:" with the name, "k:" with the keys of an item of a map,
// "v:" with the value of an item of a set.
type path []string

// diff collects the fields that differ between two values, as structured-merge-diff's compareWalker does.
type diff struct {
	// changed has the fields that were added or have another value.
	changed, removed []path
	at               path
	// unsure is set if a difference cannot be expressed.
	unsure bool
	sets   *fieldSets
}

// members is an object in order of its keys, which are as they are in the JSON.
type members []member

type member struct{ key, value string }

// name returns the key as the schema has it.
func (m member) name() string {
	if strings.IndexByte(m.key, '\\') < 0 {
		return m.key
	}
	return string(canonicaljson.Unescape(nil, []byte(m.key)))
}

// isContent reports whether a member of an object is neither its type nor its metadata.
func (m member) isContent() bool {
	return m.key != "apiVersion" && m.key != "kind" && m.key != "metadata"
}

// compare orders members as their object has them.
func (m member) compare(other member) int {
	return canonicaljson.CompareKeys([]byte(m.key), []byte(other.key))
}

// membersOf reads an object, which is canonical.
func membersOf(text string) members {
	var all members
	r := canonicaljson.Reader{Text: text}
	for more := r.Next('{'); more; more = r.Next(',') {
		key, ok := r.Name()
		if !ok {
			break // an empty object
		}
		all = append(all, member{key, r.Value()})
	}
	return all
}

// get returns a value, or "".
func (m members) get(key string) string {
	for i := range m {
		if m[i].key == key {
			return m[i].value
		}
	}
	return ""
}

// itemsOf reads an array, which is canonical.
func itemsOf(text string) []string {
	var all []string
	r := canonicaljson.Reader{Text: text}
	if text == "[]" {
		return nil
	}
	for more := r.Next('['); more; more = r.Next(',') {
		all = append(all, r.Value())
	}
	return all
}

// values compares two values, "" for none, at a place with a rule.
func (d *diff) values(r *rule, before, after string) {
	switch {
	case before == after || d.unsure:
		return
	case r == nil:
		d.unsure = true
		return
	}
	kind := kindOf(before + after)
	other := kind
	if before != "" && after != "" {
		other = kindOf(after)
	}
	switch {
	case kind == 'n' || other == 'n' || kind != other && (isComposite(kind) || isComposite(other)):
		d.unsure = true // structured-merge-diff deduces types then
	case isEmpty(before) && isEmpty(after):
		d.leaf(before, after)
	case kind == '{' && !r.atomicMap:
		d.objects(r, membersOf(before), membersOf(after))
		d.container(before, after)
	case kind == '[' && !r.free && r.list != atomicList:
		d.lists(r, itemsOf(before), itemsOf(after))
		d.container(before, after)
	default:
		d.leaf(before, after)
	}
}

// kindOf returns the first character of a value: {, [, " or n; 0 for all other scalars.
func kindOf(text string) byte {
	switch text[0] {
	case '{', '[', '"', 'n':
		return text[0]
	}
	return 0
}

func isComposite(kind byte) bool { return kind == '{' || kind == '[' }

func isEmpty(text string) bool { return text == "" || text == "{}" || text == "[]" }

func (d *diff) leaf(before, after string) {
	if after == "" {
		d.removed = append(d.removed, slices.Clone(d.at))
	} else if before != after {
		d.changed = append(d.changed, slices.Clone(d.at))
	}
}

// container records an object or a list that was added or removed, besides the fields in it.
func (d *diff) container(before, after string) {
	if before == "" || after == "" {
		d.leaf(before, after)
	}
}

func (d *diff) objects(r *rule, before, after members) {
	for f := range fieldsOfBoth(before, after) {
		if f.first != f.second {
			d.below(r.child(f.key), "f:"+f.key, f.first, f.second)
		}
	}
}

// both is a field of two objects, with "" for an object that lacks it.
type both struct{ key, first, second string }

// fieldsOfBoth returns the fields of two objects in order of their keys.
func fieldsOfBoth(first, second members) iter.Seq[both] {
	return func(yield func(both) bool) {
		for a, b := first, second; len(a)+len(b) > 0; {
			var field both
			switch order := compareFirst(a, b); {
			case order < 0:
				field, a = both{a[0].key, a[0].value, ""}, a[1:]
			case order > 0:
				field, b = both{b[0].key, "", b[0].value}, b[1:]
			default:
				field, a, b = both{a[0].key, a[0].value, b[0].value}, a[1:], b[1:]
			}
			if !yield(field) {
				return
			}
		}
	}
}

// compareFirst compares the first keys of two objects. None is the last.
func compareFirst(a, b members) int {
	switch {
	case len(a) == 0:
		return 1
	case len(b) == 0:
		return -1
	}
	return a[0].compare(b[0])
}

func (d *diff) lists(r *rule, before, after []string) {
	old := make(map[string]string, len(before))
	for _, item := range before {
		identity, ok := r.identity(item)
		_, twice := old[identity]
		if !ok || twice {
			d.unsure = true
			return
		}
		old[identity] = item
	}
	for _, item := range after {
		identity, ok := r.identity(item)
		if !ok {
			d.unsure = true
			return
		}
		d.below(r.items, identity, old[identity], item)
		delete(old, identity)
	}
	for _, identity := range slices.Sorted(maps.Keys(old)) {
		d.below(r.items, identity, old[identity], "")
	}
}

// isKey reports whether managed fields have a value as it is in the JSON. They write fractions in another form.
func isKey(value string) bool {
	return value[0] == '"' || value == "true" || value == "false" || isInteger(value)
}

func (d *diff) below(r *rule, element, before, after string) {
	if !isPlain(element) {
		d.unsure = true
		return
	}
	d.at = append(d.at, element)
	d.values(r, before, after)
	d.at = d.at[:len(d.at)-1]
}

// isPlain reports whether a text is in the managed fields as it is, except for its quotes.
func isPlain(text string) bool {
	return strings.IndexFunc(text, func(c rune) bool { return c == '\\' || c < ' ' || c > '~' }) < 0
}

// identity returns the element of a path for an item of a list that is a map or a set. It reports false if the item has
// none that is plain.
func (r *rule) identity(item string) (string, bool) {
	if r.list == setList {
		return "v:" + item, isPlain(item) && isKey(item)
	}
	var keys strings.Builder
	keys.WriteString("k:")
	separator := byte('{')
	for _, key := range r.keys {
		value, found := canonicaljson.Member(item, 0, key)
		if !found || !isPlain(key) || !isKey(item[value.Start:value.End]) {
			return "", false
		}
		keys.WriteByte(separator)
		separator = ','
		keys.WriteString(`"` + key + `":` + item[value.Start:value.End])
	}
	keys.WriteByte('}')
	return keys.String(), isPlain(keys.String())
}
