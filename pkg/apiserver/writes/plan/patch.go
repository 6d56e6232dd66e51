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
	for f := range fieldsOfBoth(object, patch) {
		value, ok := mergeValue(f.first, f.second)
		if !ok {
			return nil, false
		}
		if value != "" {
			merged = append(merged, member{f.key, value})
		}
	}
	return merged, true
}

// mergeValue returns "" if the patch deletes the value. Each may be "", for none.
func mergeValue(value, patch string) (string, bool) {
	switch {
	case patch == "":
		return value, true
	case patch == "null":
		return "", true
	case value != "" && value[0] == '{' && patch[0] == '{':
		merged, ok := mergeMembers(membersOf(value), membersOf(patch))
		return canonicaljson.StringOf(merged.encode()), ok
	}
	return patch, !mayHaveNull(patch)
}

// mayHaveNull also reports true for strings that contain one.
func mayHaveNull(text string) bool {
	return (text[0] == '{' || text[0] == '[') && strings.Contains(text, "null")
}
