// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package watchcache

import (
	"encoding/json"
	"strconv"
	"strings"
)

// span is a range of bytes of a JSON text.
type span struct{ start, end uint32 }

func newSpan(start, end int) span { return span{uint32(start), uint32(end)} }

// reader reads JSON as encoding/json writes it, without white space. It fails at what it does not expect.
type reader struct {
	text   string
	at     int
	failed bool
}

// member returns the value of a key of the object that begins at an offset. The key needs no escaping.
func member(text string, at int, key string) (span, bool) {
	r := reader{text: text, at: at}
	for more := r.next('{'); more; more = r.next(',') {
		name, ok := r.name()
		value := r.skip()
		if !ok || name == key {
			return value, ok
		}
	}
	return span{}, false
}

// name reads the name of a member as it is, escaped, up to its value.
func (r *reader) name() (name string, ok bool) {
	begin := r.at + 1
	if r.at >= len(r.text) || r.text[r.at] != '"' {
		return "", false
	}
	r.at = skipString(r.text, r.at) + 1
	if r.at >= len(r.text) {
		return "", false
	}
	return r.text[begin : r.at-2], true
}

// skip returns the place of any value.
func (r *reader) skip() span {
	begin := r.at
	r.at = skipValue(r.text, r.at)
	return newSpan(begin, r.at)
}

// value returns any value as it is.
func (r *reader) value() string {
	value := r.skip()
	return r.text[value.start:value.end]
}

// next skips a character, if it is next.
func (r *reader) next(c byte) bool {
	if r.at < len(r.text) && r.text[r.at] == c {
		r.at++
		return true
	}
	return false
}

func (r *reader) expect(c byte) {
	if !r.next(c) {
		r.failed = true
	}
}

// object calls member at the value of each key. member must read the value.
func (r *reader) object(member func(key string)) {
	r.expect('{')
	for !r.failed && !r.next('}') {
		key := r.string()
		r.expect(':')
		if !r.failed {
			member(key)
		}
		if !r.next(',') && (r.at >= len(r.text) || r.text[r.at] != '}') {
			r.failed = true
		}
	}
}

// array calls item at each item. item must read it.
func (r *reader) array(item func()) {
	r.expect('[')
	for !r.failed && !r.next(']') {
		item()
		if !r.next(',') && (r.at >= len(r.text) || r.text[r.at] != ']') {
			r.failed = true
		}
	}
}

func (r *reader) string() string {
	begin := r.at
	if !r.next('"') {
		r.failed = true
		return ""
	}
	length := strings.IndexByte(r.text[r.at:], '"')
	if length < 0 {
		r.failed = true
		return ""
	}
	found := r.text[r.at : r.at+length]
	if strings.IndexByte(found, '\\') >= 0 {
		r.at = begin
		return r.escaped()
	}
	r.at += length + 1
	return found
}

func (r *reader) escaped() (decoded string) {
	if err := json.Unmarshal([]byte(r.value()), &decoded); err != nil {
		r.failed = true
	}
	return decoded
}

func (r *reader) stringMap() map[string]string {
	values := map[string]string{}
	r.object(func(key string) { values[key] = r.string() })
	return values
}

func (r *reader) integer() int64 {
	value, err := strconv.ParseInt(r.value(), 10, 64)
	if err != nil {
		r.failed = true
	}
	return value
}

func (r *reader) boolean() bool {
	value := r.value()
	if value != "true" && value != "false" {
		r.failed = true
	}
	return value == "true"
}

// skipValue returns the offset after the value that begins at an offset.
func skipValue(text string, at int) int {
	if at >= len(text) {
		return at
	}
	switch text[at] {
	case '"':
		return skipString(text, at)
	case '{', '[':
		return skipRest(text, at+1)
	}
	for at < len(text) && text[at] != ',' && text[at] != '}' && text[at] != ']' {
		at++
	}
	return at
}

// skipRest returns the offset after the object or array that an offset is in, between two values.
func skipRest(text string, at int) int {
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
