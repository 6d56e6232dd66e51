// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package watchcache

import (
	"time"
	"unicode/utf8"

	"github.com/annex-dev/annex/pkg/storage/canonicaljson"
)

// layout has the places of metadata in an encoded object.
type layout struct {
	// metadata, name, namespace and labels are values in the object, name and namespace without
	// their quotes. An object without namespace or labels has an empty span.
	metadata, name, namespace, labels canonicaljson.Span
	// version is the offset for the resource version, with which objects are not stored: before
	// the key that follows it, or at the end of the metadata.
	version int
}

// match returns the layout of an encoded object if upstream's codec would decode it to what it
// is, and encode it to the same bytes again. The object ends with a newline.
func (s *canonicalSchema) match(text []byte) (at layout, matches bool) {
	if len(text) == 0 || text[len(text)-1] != '\n' {
		return at, false
	}
	scan := &scanner{canonicaljson.Scanner{Text: text[:len(text)-1]}}
	found := 0
	matches = scan.fields(s.root, func(key []byte) (is, ok bool) {
		found++
		switch string(key) {
		case "apiVersion":
			value, ok := scan.String()
			return true, ok && string(value) == s.apiVersion
		case "kind":
			value, ok := scan.String()
			return true, ok && string(value) == s.kind
		case "metadata":
			start := scan.At
			ok = scan.metadata(&at)
			at.metadata = canonicaljson.NewSpan(start, scan.At)
			if at.version == 0 {
				at.version = scan.At - 1
			}
			return true, ok
		}
		found--
		return false, false
	})
	return at, matches && found == 3 && scan.At == len(scan.Text)
}

// metadata reads metadata that is not changed by a conversion to metav1.ObjectMeta and back:
// fields with omitempty are not empty, and those that upstream would add are there.
func (s *scanner) metadata(at *layout) bool {
	var name, created, generation bool
	return s.Object(func(key []byte) bool {
		if at.version == 0 && string(key) > "resourceVersion" {
			at.version = s.At - len(`"":`) - len(key)
		}
		switch string(key) {
		case "annotations":
			return s.stringMap()
		case "creationTimestamp":
			created = true
			return s.time()
		case "deletionGracePeriodSeconds":
			_, ok := s.Integer()
			return ok
		case "deletionTimestamp":
			return s.time()
		case "finalizers":
			return s.nonEmptyArray(s.nonEmptyString)
		case "generateName", "uid":
			return s.nonEmptyString()
		case "generation":
			var ok bool
			generation, ok = s.Integer()
			return ok
		case "labels":
			start := s.At
			ok := s.stringMap()
			at.labels = canonicaljson.NewSpan(start, s.At)
			return ok
		case "managedFields":
			return s.nonEmptyArray(s.managedFields)
		case "name":
			name = true
			return s.plainString(&at.name)
		case "namespace":
			return s.plainString(&at.namespace)
		case "ownerReferences":
			return s.nonEmptyArray(s.ownerReference)
		}
		return false
	}) && name && created && generation
}

func (s *scanner) managedFields() bool {
	return s.Object(func(key []byte) bool {
		switch string(key) {
		case "apiVersion", "fieldsType", "manager", "operation", "subresource":
			return s.nonEmptyString()
		case "fieldsV1":
			return s.maps()
		case "time":
			return s.time()
		}
		return false
	})
}

// ownerReference reads an owner reference. Its four strings are always written.
func (s *scanner) ownerReference() bool {
	found := 0
	return s.Object(func(key []byte) bool {
		switch string(key) {
		case "apiVersion", "kind", "name", "uid":
			found++
			_, ok := s.String()
			return ok
		case "blockOwnerDeletion", "controller":
			return s.Literal("true") || s.Literal("false")
		}
		return false
	}) && found == 4
}

// maps reads an object of objects.
func (s *scanner) maps() bool {
	return s.Object(func([]byte) bool { return s.maps() })
}

func (s *scanner) nonEmptyString() bool {
	value, ok := s.String()
	return ok && len(value) > 0
}

// plainString reads a string without escape sequences that is not empty.
func (s *scanner) plainString(at *canonicaljson.Span) bool {
	value, ok := s.String()
	*at = canonicaljson.NewSpan(s.At-1-len(value), s.At-1)
	for _, c := range value {
		ok = ok && c != '\\' && c < utf8.RuneSelf
	}
	return ok && len(value) > 0
}

// stringMap reads an object of strings that is not empty.
func (s *scanner) stringMap() bool {
	found := false
	return s.Object(func([]byte) bool {
		found = true
		_, ok := s.String()
		return ok
	}) && found
}

func (s *scanner) nonEmptyArray(item func() bool) bool {
	found := false
	return s.Array(func() bool {
		found = true
		return item()
	}) && found
}

// time reads a time as metav1.Time writes it. The zero time is written as null.
func (s *scanner) time() bool {
	value, ok := s.String()
	if !ok || len(value) != len("2006-01-02T15:04:05Z") || value[len(value)-1] != 'Z' {
		return false
	}
	parsed, err := time.Parse(time.RFC3339, string(value))
	return err == nil && !parsed.IsZero()
}
