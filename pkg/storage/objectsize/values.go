// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package objectsize

import "bytes"

const (
	// valueBytes is the least that a value weighs. An empty object, two characters, takes some 450
	// bytes while it is written: as much as 20 characters of a long string.
	valueBytes = 32
	// bytesPerValue bounds the values of an object: it may have as many as fit into the largest one if
	// each takes so many bytes.
	bytesPerValue = 8
	// aliasedValues is how many values the YAML decoder makes of aliases at least, before it limits
	// them to a part of all values (allowedAliasRatio of gopkg.in/yaml.v2).
	aliasedValues = 400_000
)

// MaxValues returns how many values an object may have if it may have maxBytes bytes.
func MaxValues(maxBytes int64) int64 { return maxBytes / bytesPerValue }

// Values counts the values of an object, which take most of its memory: objects, lists, strings,
// numbers, booleans and nulls. In YAML that is not JSON it may count too many.
type Values struct {
	// IsJSON is set if nothing else would be decoded. It is faster then.
	IsJSON bool

	bytes, inJSON, inYAML int64
	// last is the last character outside of strings that is not a space, and previous that before
	// the next.
	last, previous                       byte
	inString, escaped, isYAML, hasAnchor bool
}

// Count returns the number of values.
func (v *Values) Count() int64 {
	if v.isYAML {
		return v.inYAML + 1
	}
	return v.inJSON
}

// Weight returns the bytes that the object counts as in a Budget.
func (v *Values) Weight() int64 {
	count := v.Count()
	if v.isYAML && v.hasAnchor {
		count += aliasedValues
	}
	return max(v.bytes, count*valueBytes)
}

// Add adds the next part of the object's text.
func (v *Values) Add(text []byte) {
	v.bytes += int64(len(text))
	for i := 0; i < len(text); i++ {
		if v.IsJSON && v.inString && !v.escaped {
			if i += v.skipString(text[i:]); i == len(text) {
				return
			}
		}
		c := text[i]
		kind := kinds[c]
		if kind&separates != 0 || v.previous == '-' && kind&space != 0 {
			v.inYAML++
		}
		switch {
		case v.escaped:
			v.escaped = false
		case v.inString:
			v.escaped, v.inString = c == '\\', c != '"'
		case kind&space == 0:
			v.outside(c, kind)
		case v.previous == '-':
			v.isYAML = true
		}
		v.previous = c
	}
}

// skipString goes to the quote that ends a string, and returns how many bytes are before it.
func (v *Values) skipString(text []byte) int {
	for from := 0; ; {
		quote := bytes.IndexByte(text[from:], '"')
		end := from + quote
		if quote < 0 {
			end = len(text)
		}
		escaped := false
		for i := end - 1; i >= from && text[i] == '\\'; i-- {
			escaped = !escaped
		}
		if quote < 0 {
			v.escaped = escaped
		}
		if quote < 0 || !escaped {
			return end
		}
		from = end + 1
	}
}

// outside adds a character that is neither a space nor in a string.
func (v *Values) outside(c byte, kind kind) {
	first := v.last == 0 || kinds[v.last]&opens != 0
	if c == ',' || first && kind&closes == 0 {
		v.inJSON++
	}
	begins := kind&(structure) == 0 && (c == '"' || kinds[v.previous]&literal == 0)
	if kind == 0 || c == ':' && v.last != '"' || begins && !first && v.last != ',' && v.last != ':' {
		v.isYAML = true
	}
	v.hasAnchor = v.hasAnchor || c == '&'
	v.inString = c == '"'
	v.last = c
}

// kind says what a character is in JSON.
type kind uint8

const (
	space kind = 1 << iota
	opens
	closes
	// structure is any of {}[],:
	structure
	// literal is a quote, or part of a number or of true, false or null.
	literal
	// separates values in YAML; so do a dash and a space.
	separates
)

var kinds = func() (kinds [256]kind) {
	for characters, kind := range map[string]kind{
		" \t\r\n": space, "{[": opens, "}]": closes, "{}[],:": structure, `"+-.0123456789Etruefalsenull`: literal,
		// The last three end the encodings of what YAML 1.1 takes for line breaks.
		":,{[\r\n\x85\xa8\xa9": separates,
	} {
		for i := range len(characters) {
			kinds[characters[i]] |= kind
		}
	}
	return kinds
}()
