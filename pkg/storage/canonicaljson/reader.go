// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package canonicaljson

import (
	"encoding/json"
	"strconv"
	"strings"
	"unsafe"
)

// Span is a range of bytes of a JSON text.
type Span struct{ Start, End uint32 }

// NewSpan returns the range between two offsets.
func NewSpan(start, end int) Span { return Span{uint32(start), uint32(end)} }

// Reader reads JSON as encoding/json writes it, without white space. It fails at what it does not expect.
type Reader struct {
	Text string
	// At is the offset of the next value.
	At int
	// Failed is set once something else was found than expected.
	Failed bool
}

// BytesOf returns the bytes of a string, which must not be changed, without copying them.
func BytesOf(text string) []byte { return unsafe.Slice(unsafe.StringData(text), len(text)) }

// StringOf returns the string of bytes, which must not be changed any more, without copying them.
func StringOf(text []byte) string { return unsafe.String(unsafe.SliceData(text), len(text)) }

// Member returns the value of a key of the object that begins at an offset. The key needs no escaping.
func Member(text string, at int, key string) (Span, bool) {
	r := Reader{Text: text, At: at}
	for more := r.Next('{'); more; more = r.Next(',') {
		name, ok := r.Name()
		value := r.Skip()
		if !ok || name == key {
			return value, ok
		}
	}
	return Span{}, false
}

// Name reads the name of a member as it is, escaped, up to its value.
func (r *Reader) Name() (name string, ok bool) {
	begin := r.At + 1
	if r.At >= len(r.Text) || r.Text[r.At] != '"' {
		return "", false
	}
	r.At = skipString(r.Text, r.At) + 1
	if r.At >= len(r.Text) {
		return "", false
	}
	return r.Text[begin : r.At-2], true
}

// Skip returns the place of any value.
func (r *Reader) Skip() Span {
	begin := r.At
	r.At = SkipValue(r.Text, r.At)
	return NewSpan(begin, r.At)
}

// Value returns any value as it is.
func (r *Reader) Value() string {
	value := r.Skip()
	return r.Text[value.Start:value.End]
}

// Next skips a character, if it is next.
func (r *Reader) Next(c byte) bool {
	if r.At < len(r.Text) && r.Text[r.At] == c {
		r.At++
		return true
	}
	return false
}

// expect skips a character, which has to be next.
func (r *Reader) expect(c byte) {
	if !r.Next(c) {
		r.Failed = true
	}
}

// Object calls member at the value of each key. member must read the value.
func (r *Reader) Object(member func(key string)) {
	r.expect('{')
	for !r.Failed && !r.Next('}') {
		key := r.String()
		r.expect(':')
		if !r.Failed {
			member(key)
		}
		if !r.Next(',') && (r.At >= len(r.Text) || r.Text[r.At] != '}') {
			r.Failed = true
		}
	}
}

// Array calls item at each item. item must read it.
func (r *Reader) Array(item func()) {
	r.expect('[')
	for !r.Failed && !r.Next(']') {
		item()
		if !r.Next(',') && (r.At >= len(r.Text) || r.Text[r.At] != ']') {
			r.Failed = true
		}
	}
}

// String returns a decoded string.
func (r *Reader) String() string {
	begin := r.At
	if !r.Next('"') {
		r.Failed = true
		return ""
	}
	length := strings.IndexByte(r.Text[r.At:], '"')
	if length < 0 {
		r.Failed = true
		return ""
	}
	found := r.Text[r.At : r.At+length]
	if strings.IndexByte(found, '\\') >= 0 {
		r.At = begin
		return r.escaped()
	}
	r.At += length + 1
	return found
}

func (r *Reader) escaped() (decoded string) {
	if err := json.Unmarshal([]byte(r.Value()), &decoded); err != nil {
		r.Failed = true
	}
	return decoded
}

// StringMap returns an object of strings.
func (r *Reader) StringMap() map[string]string {
	values := map[string]string{}
	r.Object(func(key string) { values[key] = r.String() })
	return values
}

// Integer returns an integer of 64 bits.
func (r *Reader) Integer() int64 {
	value, err := strconv.ParseInt(r.Value(), 10, 64)
	if err != nil {
		r.Failed = true
	}
	return value
}

// Boolean returns true or false.
func (r *Reader) Boolean() bool {
	value := r.Value()
	if value != "true" && value != "false" {
		r.Failed = true
	}
	return value == "true"
}

// SkipValue returns the offset after the value that begins at an offset.
func SkipValue(text string, at int) int {
	if at >= len(text) {
		return at
	}
	switch text[at] {
	case '"':
		return skipString(text, at)
	case '{', '[':
		return SkipRest(text, at+1)
	}
	for at < len(text) && text[at] != ',' && text[at] != '}' && text[at] != ']' {
		at++
	}
	return at
}

// SkipRest returns the offset after the object or array that an offset is in, between two values.
func SkipRest(text string, at int) int {
	for depth := 1; at < len(text); at++ {
		switch text[at] {
		case '"':
			at = skipString(text, at) - 1
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth == 0 {
				return at + 1
			}
		}
	}
	return len(text)
}

// skipString returns the offset after the string that begins at an offset.
func skipString(text string, at int) int {
	for begin := at + 1; begin <= len(text); {
		length := strings.IndexByte(text[begin:], '"')
		if length < 0 {
			break
		}
		end := begin + length
		escapes := 0
		for text[end-escapes-1] == '\\' {
			escapes++
		}
		if begin = end + 1; escapes%2 == 0 {
			return begin
		}
	}
	return len(text)
}
