// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"bytes"
	"regexp"
	"slices"

	"github.com/annex-dev/annex/pkg/storage/canonicaljson"
)

// lastAppliedManager is the manager for which upstream also changes an annotation.
const lastAppliedManager = "kubectl"

// applied returns the object with an apply configuration merged into it. It returns an error for fields that upstream would
// reset, and for items that the object lacks.
func (u *update) applied(config members) (members, error) {
	if u.write.Manager == lastAppliedManager {
		return nil, errManagedFields
	}
	content := config.only(member.isContent)
	if slices.ContainsFunc(content, func(m member) bool { return !u.isApplied(m) }) {
		return nil, errSchema
	}
	metadata, err := u.metadataOf(config)
	if err != nil {
		return nil, err
	}
	metadata = metadata.only(func(m member) bool { return m.key != "name" && m.key != "namespace" })
	for _, m := range metadata {
		if editable[m.key] == nil || u.write.Status || metadataFields[m.key].isEmpty(m.value) {
			return nil, errMetadata
		}
	}
	var ok bool
	if u.applies, ok = u.fieldsOfConfig(metadata, content); !ok {
		return nil, errManagedFields
	}
	merged, ok := mergeApplied(u.ruleOf, u.before, config)
	if !ok {
		return nil, errManagedFields
	}
	return merged, nil
}

// metadataRule is the rule of the metadata that may be applied.
var metadataRule = func() *rule {
	r := &rule{kinds: objects, properties: map[string]property{}}
	for name, of := range editable {
		r.properties[name] = property{rule: of}
	}
	for _, name := range []string{"name", "namespace"} {
		r.properties[name] = property{rule: newRule(ofType("string"), false)}
	}
	return r
}()

// ruleOf returns the rule of a field of the object, nil for an unknown one.
func (u *update) ruleOf(name string) *rule {
	if name == "metadata" {
		return metadataRule
	}
	return u.root.child(name)
}

// fieldsOfConfig returns the fields of an apply configuration, of which metadata has no identity, as its manager has them in
// the managed fields.
func (u *update) fieldsOfConfig(metadata, content members) (string, bool) {
	set, ok := metadataRule.fieldsIn(metadata, nil)
	if len(set) > 0 {
		set = members{{"f:metadata", string(set.encode())}}
	}
	if ok {
		set, ok = u.root.fieldsIn(content, set)
	}
	return string(set.encode()), ok
}

// isApplied reports whether a field is content that the write may apply.
func (u *update) isApplied(m member) bool {
	if u.write.Status {
		return m.key == "status"
	}
	return u.isContent(m)
}

// fieldsIn adds the fields of an object to a set, as structured-merge-diff's toFieldSetWalker does.
func (r *rule) fieldsIn(object, set members) (members, bool) {
	for _, m := range object {
		child := r.child(m.key)
		if child == nil || !isPlain(m.key) {
			return nil, false
		}
		below, isLeaf, ok := child.fieldsOf(m.value)
		if !ok {
			return nil, false
		}
		if _, declared := r.properties[m.key]; !declared || isLeaf {
			set = append(set, newField("f:"+m.key, below, true))
		} else if len(below) > 0 {
			set = append(set, newField("f:"+m.key, below, false))
		}
	}
	return set, true
}

// newField returns a path element with the fields below it. owned is set if it is a member of the set itself.
func newField(element string, below members, owned bool) member {
	if owned && len(below) > 0 {
		below = append(below, member{".", "{}"})
	}
	return member{quoted(element), string(below.encode())}
}

// fieldsOf returns the fields below a value. A leaf has none.
func (r *rule) fieldsOf(text string) (below members, isLeaf, ok bool) {
	switch {
	case text == "null":
		return nil, false, false
	case text[0] == '{' && !r.atomicMap:
		below, ok = r.fieldsIn(membersOf(text), nil)
		return below, text == "{}", ok
	case text[0] == '[' && !r.free && r.list != atomicList:
		for _, item := range itemsOf(text) {
			identity, known := r.identity(item)
			if !known {
				return nil, false, false
			}
			inner, _, ok := r.items.fieldsOf(item)
			if !ok {
				return nil, false, false
			}
			below = append(below, newField(identity, inner, true))
		}
		return below, false, true
	}
	return nil, true, true
}

// mergeApplied merges an object that is applied into the stored one, with the rules of their fields.
func mergeApplied(rules func(name string) *rule, object, applied members) (members, bool) {
	merged := make(members, 0, len(object)+len(applied))
	for f := range fieldsOfBoth(object, applied) {
		value, ok := f.first+f.second, true // of one of them
		if f.first != "" && f.second != "" {
			value, ok = rules(f.key).merge(f.first, f.second)
		}
		if !ok {
			return nil, false
		}
		merged = append(merged, member{f.key, value})
	}
	return merged, true
}

// merge merges a value that is applied into the stored one. Lists have to have its items, in the same order.
func (r *rule) merge(stored, applied string) (string, bool) {
	if r == nil || kindOf(stored) != kindOf(applied) && (isComposite(kindOf(stored)) || isComposite(kindOf(applied))) {
		return "", false
	}
	switch {
	case applied[0] == '{' && !r.atomicMap:
		merged, ok := mergeApplied(r.child, membersOf(stored), membersOf(applied))
		return string(merged.encode()), ok
	case applied[0] == '[' && !r.free && r.list != atomicList:
		return r.mergeItems(itemsOf(stored), itemsOf(applied))
	}
	return applied, true
}

// mergeItems reports false also for stored items that are there twice, which upstream allows in finalizers, and merges.
func (r *rule) mergeItems(stored, applied []string) (string, bool) {
	places := make(map[string]int, len(stored))
	for i, item := range stored {
		identity, ok := r.identity(item)
		if _, twice := places[identity]; !ok || twice {
			return "", false
		}
		places[identity] = i
	}
	last := -1
	for _, item := range applied {
		identity, ok := r.identity(item)
		at, found := places[identity]
		if !ok || !found || at <= last {
			return "", false
		}
		if stored[at], ok = r.items.merge(stored[at], item); !ok {
			return "", false
		}
		last = at
	}
	return joined(stored), true
}

// checkOwners returns an error if the manager of a configuration has applied other fields before, which upstream may remove,
// or if another manager has a field that changes, and the write is not forced.
func (u *update) checkOwners(entries []*entry, own int) error {
	if len(u.diff.removed) > 0 || own >= 0 && !includes(u.applies, entries[own].fields) {
		return errManagedFields
	}
	if own < 0 && len(u.diff.changed) == 0 {
		return errManagedFields // upstream adds an entry without a time
	}
	for i, e := range entries {
		if i != own && !u.write.Force && slices.ContainsFunc(u.diff.changed, e.owns) {
			return errManagedFields // a conflict
		}
	}
	return nil
}

// includes reports whether a set of fields has all fields of another one.
func includes(fields, others string) bool {
	if others == noFields {
		return isMember(fields)
	}
	for f := range fieldsOfBoth(membersOf(fields), membersOf(others)) {
		switch {
		case f.second == "":
		case f.key == ".":
			if !isMember(fields) {
				return false
			}
		case f.first == "" || !includes(f.first, f.second):
			return false
		}
	}
	return true
}

// isMember reports whether a path is a member of a set that has fields below it.
func isMember(fields string) bool {
	_, is := canonicaljson.Member(fields, 0, ".")
	return is || fields == noFields
}

var entryTime = regexp.MustCompile(`"time":"[^"]*"`)

// changesOnlyTimes reports whether the times of managed fields are all that changes. Upstream keeps them then.
func (u *update) changesOnlyTimes(content members, changes map[string]string) bool {
	for name := range editable {
		if value, written := changes[name]; written && value != u.metadata.get(name) {
			return false
		}
	}
	slices.SortFunc(content, member.compare)
	return slices.Equal(content, u.before.only(member.isContent)) &&
		entryTime.ReplaceAllString(changes["managedFields"], "") == entryTime.ReplaceAllString(u.metadata.get("managedFields"), "")
}

// isPlainYAML reports whether a JSON text has only characters that have the same meaning in YAML, in which apply
// configurations are read.
func isPlainYAML(text []byte) bool {
	return bytes.IndexFunc(text, func(c rune) bool { return c > '~' || c < ' ' && c != '\n' }) < 0 && !bytes.Contains(text, []byte(`\u`))
}
