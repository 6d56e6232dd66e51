// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package keys

import (
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestKeys(t *testing.T) {
	t.Parallel()
	widgets := schema.GroupResource{Group: "example.com", Resource: "widgets"}
	secrets := schema.GroupResource{Resource: "secrets"}
	for name, tc := range map[string]struct{ got, want string }{
		"root":                    {Root("/annex"), "/annex/"},
		"root without slash":      {Root("annex"), "/annex/"},
		"root with slashes":       {Root("/a/b/"), "/a/b/"},
		"root of everything":      {Root("/"), "/"},
		"objects":                 {Objects("/annex", widgets), "/annex/example.com/widgets/"},
		"objects of a core kind":  {Objects("/annex", secrets), "/annex/secrets/"},
		"own":                     {Own("/annex"), "/annex/_annex/"},
		"store":                   {Store("/annex"), "/annex/_annex/store"},
		"dictionaries":            {Dictionaries("/annex", widgets), "/annex/_annex/dictionaries/example.com/widgets/"},
		"dictionary":              {Dictionary("/annex", widgets, "7"), "/annex/_annex/dictionaries/example.com/widgets/7"},
		"revisions":               {Revisions("/annex"), "/annex/_annex/revisions/"},
		"revision":                {Revision("/annex", widgets), "/annex/_annex/revisions/example.com/widgets"},
		"frozen":                  {Frozen("/annex", widgets), "/annex/_annex/frozen/example.com/widgets"},
		"limit":                   {Limit("/annex", widgets), "/annex/_annex/limits/example.com/widgets"},
		"limit of a core kind":    {Limit("/annex", secrets), "/annex/_annex/limits/core/secrets"},
		"all dictionaries":        {AllDictionaries("/annex"), "/annex/_annex/dictionaries/"},
		"unfinished restore":      {Restore("/annex"), "/annex/_annex/restore"},
		"store below root prefix": {Store("/"), "/_annex/store"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if tc.got != tc.want {
				t.Errorf("got %s, want %s", tc.got, tc.want)
			}
		})
	}
}

func TestBeside(t *testing.T) {
	t.Parallel()
	before, after := Beside("/annex")
	in := func(part [2]string, key string) bool { return part[0] <= key && key < part[1] }
	for key, want := range map[string]bool{
		"/annex/Z":                     true,
		"/annex/_annex/store":          false,
		"/annex/_annex0":               true,
		"/annex/example.com/widgets/a": true,
		"/annexes/a":                   false,
	} {
		if got := in(before, key) || in(after, key); got != want {
			t.Errorf("%s: in one of the parts %v, want %v", key, got, want)
		}
		if in(before, key) && in(after, key) {
			t.Errorf("%s: in both parts", key)
		}
	}
}

func TestAbove(t *testing.T) {
	t.Parallel()
	for prefix, want := range map[string][]string{
		"/": nil, "": nil, "/a": {"/"}, "a": {"/"}, "/a/b/c/": {"/a/b", "/a", "/"},
	} {
		if got := Above(prefix); !slices.Equal(got, want) {
			t.Errorf("above %q are %q, want %q", prefix, got, want)
		}
	}
}

func TestIsStore(t *testing.T) {
	t.Parallel()
	for key, want := range map[string]bool{
		Store("/"): true, Store("/a"): true, Store("/a/b"): true, "/a/_annex/stores": false, "/a/_annex/limits/core/store": false, "/a/b_annex/store": false,
	} {
		if got := IsStore(key); got != want {
			t.Errorf("%s: %v, want %v", key, got, want)
		}
	}
}
