// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package watchcache

import (
	"fmt"
	"strings"
	"unsafe"
)

// IsBookmark reports whether it is the object of a bookmark, of which nothing is stored.
func (p *Packed) IsBookmark() bool { return p.packed == nil }

// Stored returns the object as it is stored, before conversion and defaulting.
func (p *Packed) Stored() ([]byte, error) {
	data := bytesOf(p.stored.data)
	if p.stored.dictionary == nil {
		return data, nil
	}
	data, err := p.stored.dictionary.Decompress(nil, data)
	if err != nil {
		return nil, fmt.Errorf("decompress %s: %w", p.Name, err)
	}
	return data, nil
}

// WithoutMember removes a member from each object of an array. path leads to the array, through
// objects. The JSON is what encoding/json writes. It returns false if there is no such array.
func WithoutMember(data []byte, path []string, name string) ([]byte, bool) {
	text := unsafe.String(unsafe.SliceData(data), len(data))
	at := span{0, uint32(len(text))}
	for _, key := range path {
		var found bool
		if at, found = member(text, int(at.start), key); !found {
			return nil, false
		}
	}
	next := int(at.start) + 1
	if text[at.start] != '[' {
		return nil, false
	}
	var result strings.Builder
	copied := 0
	for next < int(at.end)-1 {
		if value, found := member(text, next, name); found {
			// The value goes with its name, and with one of the commas beside it.
			begin := int(value.start) - len(name) - len(`"":`)
			end := int(value.end)
			switch {
			case text[begin-1] == ',':
				begin--
			case text[end] == ',':
				end++
			}
			result.WriteString(text[copied:begin])
			copied = end
		}
		next = skipValue(text, next) + 1
	}
	result.WriteString(text[copied:])
	return []byte(result.String()), true
}
