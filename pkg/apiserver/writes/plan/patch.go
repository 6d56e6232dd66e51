// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"strings"

	"github.com/annex-dev/annex/pkg/storage/canonicaljson"
)

// mergeMembers applies a JSON merge patch to an object, as gopkg.in/evanphx/json-patch.v4 does. It reports false for nulls
// that do not delete a field: upstream removes some of them.
func mergeMembers(object, patch members) (members, bool) {
	merged := make(members, 0, len(object)+len(patch))
	for len(object)+len(patch) > 0 {
		switch order := compareFirst(object, patch); {
		case order < 0:
			merged, object = append(merged, object[0]), object[1:]
		case order > 0:
			if value := patch[0].value; value != "null" {
				if mayHaveNull(value) {
					return nil, false
				}
				merged = append(merged, patch[0])
			}
			patch = patch[1:]
		default:
			value, ok := mergeValue(object[0].value, patch[0].value)
			if !ok {
				return nil, false
			}
			if value != "" {
				merged = append(merged, member{object[0].key, value})
			}
			object, patch = object[1:], patch[1:]
		}
	}
	return merged, true
}

// mergeValue returns "" if the patch deletes the value.
func mergeValue(value, patch string) (string, bool) {
	switch {
	case patch == "null":
		return "", true
	case value[0] == '{' && patch[0] == '{':
		merged, ok := mergeMembers(membersOf(value), membersOf(patch))
		return canonicaljson.StringOf(merged.encode()), ok
	}
	return patch, !mayHaveNull(patch)
}

// mayHaveNull also reports true for strings that contain one.
func mayHaveNull(text string) bool {
	return (text[0] == '{' || text[0] == '[') && strings.Contains(text, "null")
}
