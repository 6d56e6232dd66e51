// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"testing"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"

	"github.com/annex-dev/annex/pkg/storage/canonicaljson"
	"github.com/annex-dev/annex/pkg/test/expect"
)

// TestMergeMembers compares merge patches with the module that upstream uses. Patches without a result are not
// planned.
func TestMergeMembers(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ object, patch, want string }{
		"nothing":                   {`{"a":1}`, `{}`, `{"a":1}`},
		"of nothing":                {`{}`, `{"a":1}`, `{"a":1}`},
		"order":                     {`{"b":1,"d":2}`, `{"a":3,"c":4,"d":5,"e":6}`, `{"a":3,"b":1,"c":4,"d":5,"e":6}`},
		"order of escaped keys":     {`{"\n":1,"\u003c":2,"a":3}`, `{"\u003c":4,"=":5}`, `{"\n":1,"\u003c":4,"=":5,"a":3}`},
		"null":                      {`{"a":1,"b":2}`, `{"a":null}`, `{"b":2}`},
		"null for the last field":   {`{"a":1}`, `{"a":null}`, `{}`},
		"null for none":             {`{"a":1}`, `{"b":null}`, `{"a":1}`},
		"below":                     {`{"a":{"b":1,"c":{"d":2}}}`, `{"a":{"c":{"d":3,"e":4},"f":5}}`, `{"a":{"b":1,"c":{"d":3,"e":4},"f":5}}`},
		"null below":                {`{"a":{"b":{"c":1}}}`, `{"a":{"b":{"c":null}}}`, `{"a":{"b":{}}}`},
		"empty object":              {`{"a":{"b":1}}`, `{"a":{}}`, `{"a":{"b":1}}`},
		"array":                     {`{"a":[1,2]}`, `{"a":[3]}`, `{"a":[3]}`},
		"object for a scalar":       {`{"a":1}`, `{"a":{"b":2}}`, `{"a":{"b":2}}`},
		"object for an array":       {`{"a":[1]}`, `{"a":{"b":2}}`, `{"a":{"b":2}}`},
		"scalar for an object":      {`{"a":{"b":1}}`, `{"a":2}`, `{"a":2}`},
		"object for null":           {`{"a":null}`, `{"a":{"b":2}}`, `{"a":{"b":2}}`},
		"null stays":                {`{"a":null,"b":[null]}`, `{"c":1}`, `{"a":null,"b":[null],"c":1}`},
		"null, as text":             {`{}`, `{"a":"null"}`, `{"a":"null"}`},
		"null in a new object":      {`{}`, `{"a":{"b":null}}`, ""},
		"null in a replaced scalar": {`{"a":1}`, `{"a":{"b":null}}`, ""},
		"null in an array":          {`{"a":[1]}`, `{"a":[null]}`, ""},
		"null deep in an object":    {`{"a":{"b":1}}`, `{"a":{"c":{"d":null}}}`, ""},
		"null deep in an array":     {`{"a":{"b":1}}`, `{"a":{"b":[{"c":null}]}}`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			merged, ok := mergeMembers(membersOf(test.object), membersOf(test.patch))
			if !ok {
				expect.Equal(t, test.want, "")
				return
			}
			expect.Equal(t, test.want, string(merged.encode()))
			upstream, err := jsonpatch.MergePatch([]byte(test.object), []byte(test.patch))
			expect.NoError(t, err)
			canonical, _ := canonicaljson.Append(nil, upstream)
			expect.Equal(t, string(canonical), string(merged.encode()), "upstream")
		})
	}
}
