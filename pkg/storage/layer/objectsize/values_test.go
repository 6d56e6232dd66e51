// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package objectsize

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

func valuesOf(text string) *Values {
	v := &Values{}
	for i := range len(text) {
		v.Add([]byte{text[i]}) // in parts, as bodies arrive
	}
	return v
}

func TestValues(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		text   string
		count  int64
		isYAML bool
	}{
		"empty":                 {text: "", count: 0},
		"object":                {text: "{}", count: 1},
		"string":                {text: `"a"`, count: 1},
		"fields":                {text: `{"a": 1, "b": [true, null, -1.5E+7], "c": {"d": "e"}}`, count: 8},
		"empty ones":            {text: `{"a":[ ],"b":{ },"c":[{},{},[[]]]}`, count: 8},
		"in strings":            {text: `["{[,:\"{[,:\\","],[","\n"]`, count: 4},
		"escapes":               {text: `{"a\"":"\\","\\\"b,":["\\\\","x\\\""],"c":"\\\\\\"}`, count: 6},
		"lines":                 {text: "{\r\n  \"a\":\r\n  [\n1,\n2\n]\n}\n", count: 4},
		"YAML":                  {text: "a: 1\nb: {}\n", count: 6, isYAML: true},
		"YAML with JSON's keys": {text: "1: 1\n2: 2\n", count: 5, isYAML: true},
		"YAML with quoted keys": {text: "\"a\": 1\n\"b\": 2\n", count: 5, isYAML: true},
		"YAML list":             {text: "\"a\":\n- 1\n- - 1\n", count: 8, isYAML: true},
		"YAML list of nothing":  {text: "-\n-\n-\n", count: 4, isYAML: true},
		"quote in a word":       {text: `[e"e, {}, {}, {}]`, count: 8, isYAML: true},
		"single quotes":         {text: `['"', {}, {}, {}]`, count: 8, isYAML: true},
		"comment":               {text: "[ # \"\n{}, {}, {}]", count: 8, isYAML: true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if v := valuesOf(test.text); v.Count() != test.count || v.isYAML != test.isYAML {
				t.Errorf("got %d values, YAML: %t, want %d, %t", v.Count(), v.isYAML, test.count, test.isYAML)
			}
			for part := 1; !test.isYAML && part <= len(test.text); part++ {
				v := &Values{IsJSON: true}
				for part := range slices.Chunk([]byte(test.text), part) {
					v.Add(part)
				}
				if v.Count() != test.count {
					t.Errorf("JSON in parts of %d bytes: got %d values, want %d", part, v.Count(), test.count)
				}
			}
		})
	}
}

func TestWeight(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		text string
		want int64
	}{
		"text":    {`"` + strings.Repeat("a", 998) + `"`, 1000},
		"numbers": {"[" + strings.Repeat("1,", 99) + "1]", 101 * valueBytes},
		"aliases": {"a: &a 1\nb: [*a]\n", (6 + aliasedValues) * valueBytes},
	} {
		if got := valuesOf(test.text).Weight(); got != test.want {
			t.Errorf("%s: got %d, want %d", name, got, test.want)
		}
	}
}

func TestExpandedYAML(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 1000)
	for name, test := range map[string]struct {
		text string
		want int64
	}{
		"no alias":        {"a: &a 1", 7},
		"a long string":   {"a: &a " + long + "\nb: [*a, *a, *a]", 4000},
		"a list of lists": {"a: &a [x, x, x, x]\nb: &b [*a, *a, *a, *a]\nc: [*b, *b, *b, *b]", 200},
		"a merged object": {"a: &a {k: " + long + "}\nb: {<<: *a}", 2000},
		"a long key":      {"a: &a {" + long + ": 1}\nb: [*a, *a]", 3000},
		"invalid":         {"a: &a *a", 8},
	} {
		if got := ExpandedYAML([]byte(test.text)); got < test.want || got > test.want+100 {
			t.Errorf("%s: got %d, want about %d", name, got, test.want)
		}
	}
}

func TestRefusal(t *testing.T) {
	t.Parallel()
	nested := func(levels, bytes int) string {
		return strings.Repeat(`{"a":`, levels) + `"` + strings.Repeat("x", bytes) + `"` + strings.Repeat("}", levels)
	}
	fields := func(count int) string { return "{" + strings.Repeat(`"a":1,`, count-1) + `"a":1}` }
	for name, test := range map[string]struct{ text, want string }{
		"small and deep":          {text: nested(1000, 10_000)},
		"large and not deep":      {text: nested(30, 4<<20)},
		"large and deep":          {text: nested(60, 4<<20), want: "nested too deep"},
		"small and too deep":      {text: nested(9000, 0), want: "nested too deep"},
		"brackets in strings":     {text: `"` + strings.Repeat("[", 100_000) + `"`},
		"many fields":             {text: fields(maxFields)},
		"too many fields":         {text: fields(maxFields + 1), want: "too many fields"},
		"too many in two objects": {text: "[" + fields(40_000) + "," + fields(40_000) + "]", want: "too many fields"},
		"many items":              {text: "[" + strings.Repeat("1,", 500_000) + "{}]"},
		"many small objects":      {text: "[" + strings.Repeat(`{"a":1,"b":2},`, 100_000) + "{}]"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			asJSON := &Values{IsJSON: true}
			asJSON.Add([]byte(test.text))
			for _, got := range []string{valuesOf(test.text).Refusal(), asJSON.Refusal()} {
				if (test.want == "") != (got == "") || !strings.Contains(got, test.want) {
					t.Errorf("got %q, want %q", got, test.want)
				}
			}
		})
	}
}

func TestItems(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int64{
		`{"a":1,"b":{"c":2}}`: 0, "[1,2,3,4]": 4, `[[1,2,3],[1,2,3],{"a":[[]]}]`: 5, `["[,,","],"]`: 2,
	} {
		if got := valuesOf(text).Items(); got != want {
			t.Errorf("%s: %d items, want %d", text, got, want)
		}
	}
}

// FuzzValues checks that no text without aliases has more values than are counted, or two more, and that
// objects which are not counted are not heavy.
func FuzzValues(f *testing.F) {
	for _, text := range []string{
		`{"a": 1, "b": [true, null, -1.5E+7, "x\"{,"], "c": {"d": "e"}}`, "a: 1\nb:\n- c\n- - d\n  - {e: f}\n? g\n: |\n  h\n", "[e\"e, 'x', {}]", "--- !!map\n\"a\":\n  \"b\":\n    1: 2\r3: 4\u20285: 6",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		v := valuesOf(text)
		asJSON, err := yaml.YAMLToJSON([]byte(text))
		if err != nil || v.hasAnchor || len(text) > 10_000 {
			return
		}
		var decoded any
		if json.Unmarshal(asJSON, &decoded) != nil {
			return
		}
		if values := countDecoded(decoded); values > v.Count()+2 {
			t.Errorf("%q has %d values (%s), counted as %d", text, values, asJSON, v.Count())
		}
		asJSONOnly := &Values{IsJSON: true}
		asJSONOnly.Add([]byte(text))
		if !mayBeHeavy([]byte(text)) && strings.HasPrefix(text, "{") && asJSONOnly.Weight() >= HeavyBytes {
			t.Errorf("%q weighs %d and is taken for a light one", text, asJSONOnly.Weight())
		}
		if err := json.Unmarshal([]byte(text), &decoded); err == nil && (v.isYAML || asJSONOnly.Count() != v.Count()) {
			t.Errorf("%q is JSON with %d values; taken for YAML: %t, %d values as JSON alone", text, v.Count(), v.isYAML, asJSONOnly.Count())
		}
	})
}

func countDecoded(value any) int64 {
	count := int64(1)
	switch value := value.(type) {
	case map[string]any:
		for _, v := range value {
			count += countDecoded(v)
		}
	case []any:
		for _, v := range value {
			count += countDecoded(v)
		}
	}
	return count
}
