// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package canonicaljson

import (
	"bytes"
	"encoding/json"
	"strconv"
	"unicode/utf8"
)

// maxDepth bounds the recursion.
const maxDepth = 100

// Scanner reads canonical JSON. Its methods report false at anything else, and it must not be used after that.
type Scanner struct {
	Text []byte
	// At is the offset of the next value.
	At    int
	depth int
}

// literals has the bytes that strings have as they are.
var literals = func() (is [256]bool) {
	for c := byte(' '); c < utf8.RuneSelf; c++ {
		is[c] = c != '"' && c != '\\' && c != '<' && c != '>' && c != '&'
	}
	return is
}()

// Next skips a character, if it is next.
func (s *Scanner) Next(c byte) bool {
	if s.At < len(s.Text) && s.Text[s.At] == c {
		s.At++
		return true
	}
	return false
}

// Literal skips a text, if it is next.
func (s *Scanner) Literal(text string) bool {
	if len(s.Text)-s.At < len(text) || string(s.Text[s.At:s.At+len(text)]) != text {
		return false
	}
	s.At += len(text)
	return true
}

// Object calls member at the value of each key, which may be escaped. member must read the value.
func (s *Scanner) Object(member func(key []byte) bool) bool {
	if s.depth++; s.depth > maxDepth || !s.Next('{') {
		return false
	}
	defer func() { s.depth-- }()
	if s.Next('}') {
		return true
	}
	var previous []byte
	for {
		key, ok := s.String()
		if !ok || previous != nil && CompareKeys(previous, key) >= 0 || !s.Next(':') || !member(key) {
			return false
		}
		previous = key
		if !s.Next(',') {
			return s.Next('}')
		}
	}
}

// Array calls item at each item. item must read it.
func (s *Scanner) Array(item func() bool) bool {
	if s.depth++; s.depth > maxDepth || !s.Next('[') {
		return false
	}
	defer func() { s.depth-- }()
	if s.Next(']') {
		return true
	}
	for item() {
		if !s.Next(',') {
			return s.Next(']')
		}
	}
	return false
}

// String returns a string without its quotes, escaped as it is.
func (s *Scanner) String() ([]byte, bool) {
	if !s.Next('"') {
		return nil, false
	}
	begin := s.At
	for s.At < len(s.Text) {
		switch c := s.Text[s.At]; {
		case literals[c]:
			s.At++
		case c == '"':
			s.At++
			return s.Text[begin : s.At-1 : s.At-1], true
		case c == '\\':
			_, size := unescape(s.Text[s.At:])
			if size == 0 {
				return nil, false
			}
			s.At += size
		case c >= utf8.RuneSelf:
			r, size := utf8.DecodeRune(s.Text[s.At:])
			if r == utf8.RuneError && size == 1 || r == '\u2028' || r == '\u2029' {
				return nil, false
			}
			s.At += size
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

// CompareKeys compares two keys of canonical JSON, without their quotes, as encoding/json sorts them.
func CompareKeys(a, b []byte) int {
	if bytes.IndexByte(a, '\\') >= 0 || bytes.IndexByte(b, '\\') >= 0 {
		var bufferA, bufferB [128]byte
		a, b = Unescape(bufferA[:0], a), Unescape(bufferB[:0], b)
	}
	return bytes.Compare(a, b)
}

// Unescape appends a string of canonical JSON, without its quotes.
func Unescape(to, text []byte) []byte {
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

// Integer reads an integer of 64 bits, and reports whether it is not 0.
func (s *Scanner) Integer() (nonZero, ok bool) {
	s.Next('-')
	begin := s.At
	for s.At < len(s.Text) && s.Text[s.At] >= '0' && s.Text[s.At] <= '9' {
		s.At++
	}
	digits := s.Text[begin:s.At]
	if len(digits) == 0 || len(digits) > maxDigits {
		return false, false
	}
	if digits[0] == '0' {
		return false, len(digits) == 1 && (begin == 0 || s.Text[begin-1] != '-')
	}
	return true, true
}

// Number reads a number that is decoded to an int64 or a float64.
func (s *Scanner) Number() bool {
	begin := s.At
	_, ok := s.Integer()
	if s.At < len(s.Text) && (s.Text[s.At] == '.' || s.Text[s.At] == 'e') {
		for s.At < len(s.Text) && bytes.IndexByte([]byte("0123456789.+-e"), s.Text[s.At]) >= 0 {
			s.At++
		}
		float, err := strconv.ParseFloat(string(s.Text[begin:s.At]), 64)
		if err != nil {
			return false
		}
		written, err := json.Marshal(float)
		return err == nil && bytes.Equal(written, s.Text[begin:s.At])
	}
	return ok
}
