// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package openapi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
)

// Sections of a document that grow with the definitions.
const (
	paths = iota
	definitions
	parameters
	sections
)

// parts is an encoded document, or a part of one, in JSON or protobuf.
type parts struct {
	// head and tail are the fields before and after the sections.
	head, tail [][]byte
	// entries are encoded, by section and name.
	entries [sections]map[string][]byte
}

// add adds the entries of others. Entries that are known stay as they are.
func (p *parts) add(others *parts) {
	for section, entries := range others.entries {
		for name, entry := range entries {
			if _, known := p.entries[section][name]; !known {
				if p.entries[section] == nil {
					p.entries[section] = map[string][]byte{}
				}
				p.entries[section][name] = entry
			}
		}
	}
}

// sectionNames are the sections in JSON.
var sectionNames = [sections]string{"paths", "definitions", "parameters"}

// splitJSON splits a document in JSON, as upstream writes it.
func splitJSON(document []byte) (*parts, error) {
	decoder := json.NewDecoder(bytes.NewReader(document))
	if _, err := decoder.Token(); err != nil {
		return nil, err
	}
	p, inHead := &parts{}, true
	for decoder.More() {
		var value json.RawMessage
		name, err := decoder.Token()
		if err == nil {
			err = decoder.Decode(&value)
		}
		if err != nil {
			return nil, err
		}
		section := slices.Index(sectionNames[:], fmt.Sprint(name))
		switch field := append(fmt.Appendf(nil, "%q:", name), value...); {
		case section >= 0:
			inHead = false
			var entries map[string]json.RawMessage
			if err := json.Unmarshal(value, &entries); err != nil {
				return nil, fmt.Errorf("read %s: %w", name, err)
			}
			p.entries[section] = make(map[string][]byte, len(entries))
			for name, entry := range entries {
				p.entries[section][name] = entry
			}
		case inHead:
			p.head = append(p.head, field)
		default:
			p.tail = append(p.tail, field)
		}
	}
	return p, nil
}

// writeJSON writes the document in JSON.
func (p *parts) writeJSON(w io.Writer) error {
	out := &errorWriter{w: w}
	separator := "{"
	for _, field := range p.head {
		out.write([]byte(separator), field)
		separator = ","
	}
	for section, entries := range p.entries {
		if len(entries) == 0 && section != paths {
			continue
		}
		out.write(fmt.Appendf(nil, "%s%q:{", separator, sectionNames[section]))
		separator = ","
		for i, name := range slices.Sorted(maps.Keys(entries)) {
			if i > 0 {
				out.write([]byte(","))
			}
			key, err := json.Marshal(name)
			if err != nil {
				return err
			}
			out.write(key, []byte(":"), entries[name])
		}
		out.write([]byte("}"))
	}
	for _, field := range p.tail {
		out.write([]byte(","), field)
	}
	out.write([]byte("}"))
	return out.err
}

// Fields of Document in gnostic's OpenAPIv2.proto, in the order of the sections: the sections, and
// their entries, which begin with a field 1 for the name.
var (
	sectionFields = [sections]protowire.Number{8, 9, 10}
	entryFields   = [sections]protowire.Number{2, 1, 1}
)

// splitProtobuf splits a document in protobuf.
func splitProtobuf(document []byte) (*parts, error) {
	p, inHead := &parts{}, true
	err := eachField(document, func(number protowire.Number, field, value []byte) error {
		section := slices.Index(sectionFields[:], number)
		switch {
		case section >= 0:
			inHead = false
			p.entries[section] = map[string][]byte{}
			return eachField(value, func(_ protowire.Number, _, entry []byte) error {
				return eachField(entry, func(number protowire.Number, _, value []byte) error {
					if number == 1 {
						p.entries[section][string(value)] = entry
					}
					return nil
				})
			})
		case inHead:
			p.head = append(p.head, field)
		default:
			p.tail = append(p.tail, field)
		}
		return nil
	})
	return p, err
}

// eachField calls do with each field of a message, encoded, and with its value if that has a
// length.
func eachField(message []byte, do func(number protowire.Number, field, value []byte) error) error {
	for len(message) > 0 {
		number, kind, tag := protowire.ConsumeTag(message)
		if tag < 0 {
			return protowire.ParseError(tag)
		}
		size := protowire.ConsumeFieldValue(number, kind, message[tag:])
		if size < 0 {
			return protowire.ParseError(size)
		}
		var value []byte
		if kind == protowire.BytesType {
			value, _ = protowire.ConsumeBytes(message[tag:])
		}
		if err := do(number, message[:tag+size], value); err != nil {
			return err
		}
		message = message[tag+size:]
	}
	return nil
}

// writeProtobuf writes the document in protobuf.
func (p *parts) writeProtobuf(w io.Writer) error {
	out := &errorWriter{w: w}
	out.write(p.head...)
	for section, entries := range p.entries {
		if len(entries) == 0 && section != paths {
			continue
		}
		size := 0
		for _, entry := range entries {
			size += protowire.SizeTag(entryFields[section]) + protowire.SizeBytes(len(entry))
		}
		out.write(protowire.AppendVarint(protowire.AppendTag(nil, sectionFields[section], protowire.BytesType), uint64(size)))
		for _, name := range slices.Sorted(maps.Keys(entries)) {
			entry := entries[name]
			out.write(protowire.AppendVarint(protowire.AppendTag(nil, entryFields[section], protowire.BytesType), uint64(len(entry))), entry)
		}
	}
	out.write(p.tail...)
	return out.err
}

// errorWriter keeps the first error.
type errorWriter struct {
	w   io.Writer
	err error
}

func (e *errorWriter) write(all ...[]byte) {
	for _, data := range all {
		if e.err == nil {
			_, e.err = e.w.Write(data)
		}
	}
}
