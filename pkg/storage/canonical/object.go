// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package canonical

import "time"

// Span is a range of bytes of an encoded object.
type Span struct{ Start, End int }

// Layout tells where an encoded object has its metadata.
type Layout struct {
	// Metadata, Name, Namespace and Labels are values in the object, Name and Namespace without
	// their quotes. An object without namespace or labels has an empty Span.
	Metadata, Name, Namespace, Labels Span
	// Version is where the resource version belongs, with which objects are not stored: before
	// the key that is there, or at the end of the metadata.
	Version int
}

// Match returns the layout of an encoded object if upstream's codec would decode it to what it
// is, and encode it to the same bytes again. The object ends with a newline.
func (s *Schema) Match(text []byte) (layout Layout, matches bool) {
	if len(text) == 0 || text[len(text)-1] != '\n' {
		return layout, false
	}
	scan := &scanner{text: text[:len(text)-1]}
	found := 0
	matches = scan.fields(s.root, func(key []byte) (is, ok bool) {
		found++
		switch string(key) {
		case "apiVersion":
			value, ok := scan.string()
			return true, ok && string(value) == s.apiVersion
		case "kind":
			value, ok := scan.string()
			return true, ok && string(value) == s.kind
		case "metadata":
			layout.Metadata.Start = scan.at
			ok = scan.metadata(&layout)
			layout.Metadata.End = scan.at
			if layout.Version == 0 {
				layout.Version = scan.at - 1
			}
			return true, ok
		}
		found--
		return false, false
	})
	return layout, matches && found == 3 && scan.at == len(scan.text)
}

// metadata reads metadata that is not changed by a conversion to metav1.ObjectMeta and back:
// fields with omitempty are not empty, and those that upstream would add are there.
func (s *scanner) metadata(layout *Layout) bool {
	var name, created, generation bool
	return s.object(func(key []byte) bool {
		if layout.Version == 0 && string(key) > "resourceVersion" {
			layout.Version = s.at - len(`"":`) - len(key)
		}
		switch string(key) {
		case "annotations":
			return s.stringMap()
		case "creationTimestamp":
			created = true
			return s.time()
		case "deletionGracePeriodSeconds":
			_, ok := s.integer()
			return ok
		case "deletionTimestamp":
			return s.time()
		case "finalizers":
			return s.nonEmptyArray(s.nonEmptyString)
		case "generateName", "uid":
			return s.nonEmptyString()
		case "generation":
			var ok bool
			generation, ok = s.integer()
			return ok
		case "labels":
			layout.Labels.Start = s.at
			ok := s.stringMap()
			layout.Labels.End = s.at
			return ok
		case "managedFields":
			return s.nonEmptyArray(s.managedFields)
		case "name":
			name = true
			return s.plainString(&layout.Name)
		case "namespace":
			return s.plainString(&layout.Namespace)
		case "ownerReferences":
			return s.nonEmptyArray(s.ownerReference)
		}
		return false
	}) && name && created && generation
}

func (s *scanner) managedFields() bool {
	return s.object(func(key []byte) bool {
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
	return s.object(func(key []byte) bool {
		switch string(key) {
		case "apiVersion", "kind", "name", "uid":
			found++
			_, ok := s.string()
			return ok
		case "blockOwnerDeletion", "controller":
			return s.literal("true") || s.literal("false")
		}
		return false
	}) && found == 4
}

// maps reads an object of objects.
func (s *scanner) maps() bool {
	return s.object(func([]byte) bool { return s.maps() })
}

func (s *scanner) nonEmptyString() bool {
	value, ok := s.string()
	return ok && len(value) > 0
}

// plainString reads a string without escape sequences that is not empty.
func (s *scanner) plainString(at *Span) bool {
	value, ok := s.string()
	*at = Span{s.at - 1 - len(value), s.at - 1}
	for _, c := range value {
		ok = ok && plain[c]
	}
	return ok && len(value) > 0
}

// stringMap reads an object of strings that is not empty.
func (s *scanner) stringMap() bool {
	found := false
	return s.object(func([]byte) bool {
		found = true
		_, ok := s.string()
		return ok
	}) && found
}

func (s *scanner) nonEmptyArray(item func() bool) bool {
	found := false
	return s.array(func() bool {
		found = true
		return item()
	}) && found
}

// time reads a time as metav1.Time writes it. The zero time is written as null.
func (s *scanner) time() bool {
	value, ok := s.string()
	if !ok || len(value) != len("2006-01-02T15:04:05Z") || value[len(value)-1] != 'Z' {
		return false
	}
	parsed, err := time.Parse(time.RFC3339, string(value))
	return err == nil && !parsed.IsZero()
}
