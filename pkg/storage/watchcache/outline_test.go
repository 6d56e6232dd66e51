// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package watchcache

import (
	"testing"

	"github.com/annex-dev/annex/pkg/test/expect"
)

func TestWithoutMember(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ name, from, want string }{
		{"first", `{"a":{"b":[{"x":1,"y":2}]},"c":3}`, `{"a":{"b":[{"y":2}]},"c":3}`},
		{"last", `{"a":{"b":[{"w":[],"x":{"x":"}"}}]}}`, `{"a":{"b":[{"w":[]}]}}`},
		{"only", `{"a":{"b":[{"x":null}]}}`, `{"a":{"b":[{}]}}`},
		{"several objects", `{"a":{"b":[{"w":0,"x":1,"y":2},{"y":3},{"x":"],"}]}}`, `{"a":{"b":[{"w":0,"y":2},{"y":3},{}]}}`},
		{"only in the array", `{"x":1,"a":{"x":2,"b":[{"y":{"x":3}}],"x":4},"x":5}`, `{"x":1,"a":{"x":2,"b":[{"y":{"x":3}}],"x":4},"x":5}`},
		{"empty array", `{"a":{"b":[]}}`, `{"a":{"b":[]}}`},
		{"no array", `{"a":{"b":{"x":1}}}`, ""},
		{"null", `{"a":{"b":null}}`, ""},
		{"no path", `{"a":{}}`, ""},
		{"no object", `[]`, ""},
	} {
		got, ok := WithoutMember([]byte(tc.from), []string{"a", "b"}, "x")
		expect.Equal(t, tc.want, string(got), tc.name)
		expect.Equal(t, tc.want != "", ok, tc.name+": there is an array")
	}
}
