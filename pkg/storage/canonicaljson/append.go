// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package canonicaljson

import (
	"bytes"
	"encoding/json"
	"slices"
	"unicode/utf8"
)

// Append appends the canonical form of a JSON text. It reports false for texts that are not valid, and for those that
// Kubernetes' decoders change: with a key twice, a number in another form than encoding/json's, characters that are not
// valid, or more than 100 levels.
func Append(to, text []byte) ([]byte, bool) {
	a := &appender{Scanner: Scanner{Text: text}, out: to}
	if !a.value() {
		return nil, false
	}
	a.space()
	return a.out, a.At == len(a.Text)
}

// appender converts the text of a Scanner, which may have white space and other forms of strings.
type appender struct {
	Scanner
	out []byte
	// members belong to the objects that are being read. scratch is reused to sort them.
	members []member
	scratch []byte
}

// member is a member of an object in the output: offsets of its quoted key and of the end of its value.
type member struct{ begin, value, end int }

func (a *appender) space() {
	for a.At < len(a.Text) && (a.Text[a.At] == ' ' || a.Text[a.At] == '\n' || a.Text[a.At] == '\t' || a.Text[a.At] == '\r') {
		a.At++
	}
}

func (a *appender) value() bool {
	a.space()
	if a.At >= len(a.Text) {
		return false
	}
	begin := a.At
	switch a.Text[a.At] {
	case '{':
		return a.list('}', a.member, a.sort)
	case '[':
		return a.list(']', a.value, nil)
	case '"':
		return a.text()
	case 't':
		return a.Literal("true") && a.copy(begin)
	case 'f':
		return a.Literal("false") && a.copy(begin)
	case 'n':
		return a.Literal("null") && a.copy(begin)
	}
	return a.Number() && a.copy(begin)
}

// copy appends what was read since an offset.
func (a *appender) copy(since int) bool {
	a.out = append(a.out, a.Text[since:a.At]...)
	return true
}

// list reads an object or an array. end, if set, is called with the offset of the first item in the output, and the
// number of members that were read before.
func (a *appender) list(closing byte, item func() bool, end func(begin, before int) bool) bool {
	if a.depth++; a.depth > maxDepth {
		return false
	}
	defer func() { a.depth-- }()
	a.out = append(a.out, a.Text[a.At])
	a.At++
	begin, before := len(a.out), len(a.members)
	if a.space(); !a.Next(closing) {
		for {
			if !item() {
				return false
			}
			a.space()
			if a.Next(closing) {
				break
			}
			if !a.Next(',') {
				return false
			}
			a.out = append(a.out, ',')
		}
	}
	if end != nil && !end(begin, before) {
		return false
	}
	a.out = append(a.out, closing)
	return true
}

func (a *appender) member() bool {
	m := member{begin: len(a.out)}
	if a.space(); !a.text() {
		return false
	}
	if a.space(); !a.Next(':') {
		return false
	}
	a.out = append(a.out, ':')
	m.value = len(a.out)
	if !a.value() {
		return false
	}
	m.end = len(a.out)
	a.members = append(a.members, m)
	return true
}

// sort sorts the members of an object, which begin at an offset. It reports false if two have one key.
func (a *appender) sort(begin, before int) bool {
	members := a.members[before:]
	a.members = a.members[:before]
	if slices.IsSortedFunc(members, a.compare) {
		return !a.hasDuplicate(members)
	}
	slices.SortFunc(members, a.compare)
	if a.hasDuplicate(members) {
		return false
	}
	a.scratch = a.scratch[:0]
	for i, m := range members {
		if i > 0 {
			a.scratch = append(a.scratch, ',')
		}
		a.scratch = append(a.scratch, a.out[m.begin:m.end]...)
	}
	a.out = append(a.out[:begin], a.scratch...)
	return true
}

func (a *appender) key(m member) []byte { return a.out[m.begin+1 : m.value-2] }

func (a *appender) compare(x, y member) int { return CompareKeys(a.key(x), a.key(y)) }

func (a *appender) hasDuplicate(sorted []member) bool {
	for i := 1; i < len(sorted); i++ {
		if bytes.Equal(a.key(sorted[i-1]), a.key(sorted[i])) {
			return true
		}
	}
	return false
}

// text reads a string.
func (a *appender) text() bool {
	begin := a.At
	if _, ok := a.String(); ok {
		return a.copy(begin)
	}
	a.At = begin
	return a.otherText()
}

// otherText reads a string in a form that encoding/json does not write.
func (a *appender) otherText() bool {
	begin := a.At
	if !a.Next('"') {
		return false
	}
	for escaped := false; ; a.At++ {
		if a.At >= len(a.Text) {
			return false
		}
		c := a.Text[a.At]
		if c == '"' && !escaped {
			break
		}
		if escaped && c == 'u' && a.At+1 < len(a.Text) && (a.Text[a.At+1]|0x20) == 'd' {
			return false // it may be half of a surrogate pair
		}
		escaped = c == '\\' && !escaped
	}
	a.At++
	quoted := a.Text[begin:a.At]
	var decoded string
	if !utf8.Valid(quoted) || json.Unmarshal(quoted, &decoded) != nil {
		return false
	}
	encoded, err := json.Marshal(decoded)
	a.out = append(a.out, encoded...)
	return err == nil
}
