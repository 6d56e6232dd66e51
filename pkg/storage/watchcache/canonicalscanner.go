// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package watchcache

import (
	"bytes"

	"github.com/annex-dev/annex/pkg/storage/canonicaljson"
)

// scanner reads stored objects beside a canonicalSchema.
type scanner struct{ canonicaljson.Scanner }

// value reads a value that a node keeps.
func (s *scanner) value(n *node) bool {
	if s.At >= len(s.Text) {
		return false
	}
	switch s.Text[s.At] {
	case '{':
		return !n.embedded && s.fields(n, nil)
	case '[':
		return s.Array(func() bool { return s.value(n.items) })
	case '"':
		_, ok := s.String()
		return ok
	case 't':
		return s.Literal("true")
	case 'f':
		return s.Literal("false")
	case 'n':
		return n.nullable && s.Literal("null")
	}
	return s.Number()
}

// fields reads an object that a node keeps. special reads the values of some keys; it may be nil.
func (s *scanner) fields(n *node, special func(key []byte) (is, ok bool)) bool {
	defaults := 0
	return s.Object(func(key []byte) bool {
		if special != nil {
			if is, ok := special(key); is {
				return ok
			}
		}
		if bytes.IndexByte(key, '\\') >= 0 {
			key = canonicaljson.Unescape(nil, key)
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
