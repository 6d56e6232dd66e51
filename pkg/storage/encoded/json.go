// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package encoded

// span is a range of bytes of a JSON text.
type span struct{ start, end uint32 }

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
	depth := 0
	for at < len(text) {
		switch text[at] {
		case '"':
			at = skipString(text, at)
		case '{', '[':
			depth++
			at++
		case '}', ']':
			if depth == 0 {
				return at
			}
			depth--
			at++
		case ',':
			if depth == 0 {
				return at
			}
			at++
		default:
			at++
			continue
		}
		if depth == 0 {
			return at
		}
	}
	return at
}

// skipString returns the offset after the string that begins at an offset.
func skipString(text string, at int) int {
	for at++; at < len(text); at++ {
		switch text[at] {
		case '\\':
			at++
		case '"':
			return at + 1
		}
	}
	return len(text)
}
