// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package watchcache

import "strings"

// span is a range of bytes of a JSON text.
type span struct{ start, end uint32 }

func newSpan(start, end int) span { return span{uint32(start), uint32(end)} }

// member returns the value of a key of the object that begins at an offset. The text is what
// encoding/json writes: without white space. The key needs no escaping.
func member(text string, at int, key string) (span, bool) {
	if at >= len(text) || text[at] != '{' {
		return span{}, false
	}
	for at++; at < len(text) && text[at] == '"'; at++ {
		name := at + 1
		at = skipString(text, at)
		matches := text[name:at-1] == key
		start := at + 1
		at = skipValue(text, start)
		if matches {
			return span{uint32(start), uint32(at)}, true
		}
		if at >= len(text) || text[at] != ',' {
			break
		}
	}
	return span{}, false
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
