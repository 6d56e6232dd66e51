// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package watchcache

import (
	"bytes"
	"encoding/json"
	"strconv"
	"unicode/utf8"
)

// maxDepth bounds the recursion.
const maxDepth = 100

// scanner reads JSON exactly as encoding/json writes maps: without white space, with sorted
// keys, and each string and number in the one form that is written. Its methods report false at
// anything else.
type scanner struct {
	text  []byte
	at    int
	depth int
}

// literals has the bytes that strings have as they are.
var literals = func() (is [256]bool) {
	for c := byte(' '); c < utf8.RuneSelf; c++ {
		is[c] = c != '"' && c != '\\' && c != '<' && c != '>' && c != '&'
	}
	return is
}()

// next skips a character, if it is next.
func (s *scanner) next(c byte) bool {
	if s.at < len(s.text) && s.text[s.at] == c {
		s.at++
		return true
	}
	return false
}

func (s *scanner) literal(text string) bool {
	if len(s.text)-s.at < len(text) || string(s.text[s.at:s.at+len(text)]) != text {
		return false
	}
	s.at += len(text)
	return true
}

// object calls member at the value of each key, which may be escaped. member must read the value.
func (s *scanner) object(member func(key []byte) bool) bool {
	if s.depth++; s.depth > maxDepth || !s.next('{') {
		return false
	}
	defer func() { s.depth-- }()
	if s.next('}') {
		return true
	}
	var previous []byte
	for {
		key, ok := s.string()
		if !ok || previous != nil && !sorted(previous, key) || !s.next(':') || !member(key) {
			return false
		}
		previous = key
		if !s.next(',') {
			return s.next('}')
		}
	}
}

// array calls item at each item. item must read it.
func (s *scanner) array(item func() bool) bool {
	if s.depth++; s.depth > maxDepth || !s.next('[') {
		return false
	}
	defer func() { s.depth-- }()
	if s.next(']') {
		return true
	}
	for item() {
		if !s.next(',') {
			return s.next(']')
		}
	}
	return false
}

// string returns a string without its quotes, escaped as it is.
func (s *scanner) string() ([]byte, bool) {
	if !s.next('"') {
		return nil, false
	}
	begin := s.at
	for s.at < len(s.text) {
		switch c := s.text[s.at]; {
		case literals[c]:
			s.at++
		case c == '"':
			s.at++
			return s.text[begin : s.at-1 : s.at-1], true
		case c == '\\':
			_, size := unescape(s.text[s.at:])
			if size == 0 {
				return nil, false
			}
			s.at += size
		case c >= utf8.RuneSelf:
			r, size := utf8.DecodeRune(s.text[s.at:])
			if r == utf8.RuneError && size == 1 || r == '\u2028' || r == '\u2029' {
				return nil, false
			}
			s.at += size
		default:
			return nil, false
		}
	}
	return nil, false
}

// unescape returns the character of an escape sequence and the size of the sequence, which is 0
// if encoding/json would write the character otherwise.
func unescape(text []byte) (rune, int) {
	if len(text) < 2 {
		return 0, 0
	}
	switch text[1] {
	case '"', '\\':
		return rune(text[1]), 2
	case 'b':
		return '\b', 2
	case 'f':
		return '\f', 2
	case 'n':
		return '\n', 2
	case 'r':
		return '\r', 2
	case 't':
		return '\t', 2
	}
	if text[1] != 'u' || len(text) < 6 {
		return 0, 0
	}
	var r rune
	for _, digit := range text[2:6] {
		switch {
		case digit >= '0' && digit <= '9':
			r = r<<4 | rune(digit-'0')
		case digit >= 'a' && digit <= 'f':
			r = r<<4 | rune(digit-'a'+10)
		default:
			return 0, 0
		}
	}
	switch r {
	case '<', '>', '&', '\u2028', '\u2029':
		return r, 6
	case '\b', '\f', '\n', '\r', '\t':
		return 0, 0
	}
	if r < ' ' {
		return r, 6
	}
	return 0, 0
}

// sorted reports whether a key precedes another. Both may be escaped.
func sorted(a, b []byte) bool {
	if bytes.IndexByte(a, '\\') >= 0 || bytes.IndexByte(b, '\\') >= 0 {
		var bufferA, bufferB [128]byte
		a, b = unescaped(bufferA[:0], a), unescaped(bufferB[:0], b)
	}
	return bytes.Compare(a, b) < 0
}

// unescaped appends a string that the scanner has read.
func unescaped(to, text []byte) []byte {
	for len(text) > 0 {
		if text[0] != '\\' {
			to, text = append(to, text[0]), text[1:]
			continue
		}
		r, size := unescape(text)
		to, text = utf8.AppendRune(to, r), text[size:]
	}
	return to
}

// maxDigits is the number of decimal digits that always fit into 64 bits.
const maxDigits = 18

// integer reads an integer of 64 bits, and reports whether it is not 0.
func (s *scanner) integer() (nonZero, ok bool) {
	s.next('-')
	begin := s.at
	for s.at < len(s.text) && s.text[s.at] >= '0' && s.text[s.at] <= '9' {
		s.at++
	}
	digits := s.text[begin:s.at]
	if len(digits) == 0 || len(digits) > maxDigits {
		return false, false
	}
	if digits[0] == '0' {
		return false, len(digits) == 1 && (begin == 0 || s.text[begin-1] != '-')
	}
	return true, true
}

// number reads a number that is decoded to an int64 or a float64.
func (s *scanner) number() bool {
	begin := s.at
	_, ok := s.integer()
	if s.at < len(s.text) && (s.text[s.at] == '.' || s.text[s.at] == 'e') {
		for s.at < len(s.text) && bytes.IndexByte([]byte("0123456789.+-e"), s.text[s.at]) >= 0 {
			s.at++
		}
		float, err := strconv.ParseFloat(string(s.text[begin:s.at]), 64)
		if err != nil {
			return false
		}
		written, err := json.Marshal(float)
		return err == nil && bytes.Equal(written, s.text[begin:s.at])
	}
	return ok
}

// value reads a value that a node keeps.
func (s *scanner) value(n *node) bool {
	if s.at >= len(s.text) {
		return false
	}
	switch s.text[s.at] {
	case '{':
		return !n.embedded && s.fields(n, nil)
	case '[':
		return s.array(func() bool { return s.value(n.items) })
	case '"':
		_, ok := s.string()
		return ok
	case 't':
		return s.literal("true")
	case 'f':
		return s.literal("false")
	case 'n':
		return n.nullable && s.literal("null")
	}
	return s.number()
}

// fields reads an object that a node keeps. special reads the values of some keys; it may be nil.
func (s *scanner) fields(n *node, special func(key []byte) (is, ok bool)) bool {
	defaults := 0
	return s.object(func(key []byte) bool {
		if special != nil {
			if is, ok := special(key); is {
				return ok
			}
		}
		if bytes.IndexByte(key, '\\') >= 0 {
			key = unescaped(nil, key)
		}
		known, found := n.properties[string(key)]
		switch {
		case !found && n.unknown == nil:
			return false
		case !found:
			return s.value(n.unknown)
		case known.defaulted:
			defaults++
		}
		return s.value(known.node)
	}) && defaults == n.defaults
}
