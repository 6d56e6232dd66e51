// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package objectsize

import (
	"bytes"
	"fmt"
	"math"

	"go.yaml.in/yaml/v2"
)

const (
	// valueBytes is the least that a value weighs. An empty object, two characters, takes some 450
	// bytes while it is written: as much as 20 characters of a long string.
	valueBytes = 32
	// bytesPerValue bounds the values of an object: it may have as many as fit into the largest one if
	// each takes so many bytes.
	bytesPerValue = 8
	// The YAML decoder makes up to aliasedValues values of aliases before it limits
	// them to a part of all values (allowedAliasRatio of gopkg.in/yaml.v2).
	aliasedValues = 400_000
	// maxDepth bounds how deep the bytes of an object are nested on average, if it had shallowBytes more
	// that are not nested. Upstream's patches copy an object once for each level.
	maxDepth, shallowBytes = 32, 1 << 20
	// nestedBytes bytes, each counted once for each level, weigh as much as one.
	nestedBytes = 8
	// maxFields bounds the fields of an object by the sum of their squares: upstream inserts each into
	// a sorted list when it records who manages it.
	maxFields = 50_000
)

// MaxValues returns how many values an object may have if it may have maxBytes bytes.
func MaxValues(maxBytes int64) int64 { return maxBytes / bytesPerValue }

// Values counts the values of an object, which take most of its memory: objects, lists, strings,
// numbers, booleans and nulls. In YAML that is not JSON it may count too many.
type Values struct {
	// IsJSON is set if nothing else would be decoded. It is faster then.
	IsJSON bool

	bytes, inJSON, inYAML int64
	// nested is the sum of the depths of all bytes.
	nested int64
	// open has the numbers of fields of the objects that are open, and the negative numbers of items of
	// lists. Those that were closed add their squares to fieldSquares and itemSquares.
	open                      []int64
	fieldSquares, itemSquares int64
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
	return max(v.bytes, count*valueBytes, v.nested/nestedBytes)
}

// Refusal says why an object in JSON takes much more work than its size, or is empty.
func (v *Values) Refusal() string {
	switch {
	case v.nested > maxDepth*(v.bytes+shallowBytes):
		return fmt.Sprintf("it is nested too deep, the limit is %d levels on average, and more for a small one", maxDepth)
	case v.fieldSquares > maxFields*maxFields:
		return fmt.Sprintf("it has objects with too many fields, the limit is %d for one", maxFields)
	}
	return ""
}

// Items returns the length of one list that takes as much work as all lists of an object in JSON, if the
// work grows with the square of the length.
func (v *Values) Items() int64 { return int64(math.Sqrt(float64(v.itemSquares))) }

// Nest counts bytes of an object as nested deeper than they are in the text.
func (v *Values) Nest(bytes, levels int64) { v.nested += bytes * levels }

// IsYAML reports whether the text is not JSON.
func (v *Values) IsYAML() bool { return v.isYAML }

// Add adds the next part of the object's text.
func (v *Values) Add(text []byte) {
	v.bytes += int64(len(text))
	for i := 0; i < len(text); i++ {
		if v.IsJSON && v.inString && !v.escaped {
			skipped := v.skipString(text[i:])
			v.nested += int64(skipped * len(v.open))
			if i += skipped; i == len(text) {
				return
			}
		}
		v.nested += int64(len(v.open))
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
	begins := kind&structure == 0 && (c == '"' || kinds[v.previous]&literal == 0)
	if kind == 0 || c == ':' && v.last != '"' || begins && !first && v.last != ',' && v.last != ':' {
		v.isYAML = true
	}
	v.hasAnchor = v.hasAnchor || c == '&'
	v.nest(c, kind)
	v.inString = c == '"'
	v.last = c
}

// nest follows the objects and lists that are open.
func (v *Values) nest(c byte, kind kind) {
	last := len(v.open) - 1
	switch {
	case c == '{':
		v.open = append(v.open, 1)
	case c == '[':
		v.open = append(v.open, -1)
	case last < 0:
	case c == ',' && v.open[last] > 0:
		v.open[last]++
	case c == ',':
		v.open[last]--
	case kind&closes != 0:
		if count := v.open[last]; count > 0 {
			v.fieldSquares += count * count
		} else {
			v.itemSquares += count * count
		}
		v.open = v.open[:last]
	}
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
	for _, of := range []struct {
		characters string
		kind       kind
	}{
		{" \t\r\n", space},
		{"{[", opens},
		{"}]", closes},
		{"{}[],:", structure},
		{`"+-.0123456789Etruefalsenull`, literal},
		// The last three end the encodings of what YAML 1.1 takes for line breaks.
		{":,{[\r\n\x85\xa8\xa9", separates},
	} {
		for i := range len(of.characters) {
			kinds[of.characters[i]] |= of.kind
		}
	}
	return kinds
}()

// ExpandedYAML returns about how many bytes the values in a document of YAML have with its aliases
// replaced, which may grow with the square of the document. The decoder limits their number only, and
// lets values share text that is written once for each of them as JSON.
func ExpandedYAML(text []byte) int64 {
	var decoded any
	if !bytes.ContainsRune(text, '&') || !bytes.ContainsRune(text, '*') || yaml.Unmarshal(text, &decoded) != nil {
		return int64(len(text)) // without aliases, or invalid
	}
	return bytesOf(decoded)
}

func bytesOf(value any) int64 {
	total := int64(1)
	switch value := value.(type) {
	case string:
		total += int64(len(value))
	case []any:
		for _, item := range value {
			total += bytesOf(item)
		}
	case map[any]any:
		for key, item := range value {
			total += bytesOf(key) + bytesOf(item)
		}
	}
	return total
}
