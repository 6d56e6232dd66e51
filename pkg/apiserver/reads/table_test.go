// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package reads

import (
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/annex-dev/annex/pkg/test/expect"
)

func TestTables(t *testing.T) {
	t.Parallel()
	content := map[string]any{"spec": map[string]any{
		"date": "2999-01-01T00:00:00Z", "past": "2001-01-01T00:00:00Z", "no": "tomorrow",
		"huge": 12345678901234567890.0, "low": -12345678901234567890.0, "half": 1.5, "int": int64(7), "text": "a",
		"map":   map[string]any{"d": map[string]any{"v": "4"}, "a": map[string]any{}, "b": map[string]any{"v": "2"}, "c": map[string]any{"v": "3"}},
		"dates": map[string]any{"b": "2001-01-01T00:00:00Z", "a": "2999-01-01T00:00:00Z"},
		"list":  []any{map[string]any{"v": "z", "m": map[string]any{"q": int64(2), "p": int64(1)}}, map[string]any{"v": "a"}},
	}}
	for _, test := range []struct {
		kind, path string
		want       any
	}{
		{"date", ".spec.date", "in 292y"},
		{"date", ".spec.past", "2"},
		{"date", ".spec.no", "<invalid>"},
		{"date", ".spec.missing", nil},
		{"integer", ".spec.huge", 12345678901234567890.0},
		{"integer", ".spec.low", -12345678901234567890.0},
		{"integer", ".spec.half", int64(1)},
		{"integer", ".spec.int", int64(7)},
		{"integer", ".spec.text", nil},
		{"string", ".spec.map.*.v", "2"},
		{"string", ".spec.map[*]", "{}"},
		{"string", ".spec.map.*.missing", nil},
		{"date", ".spec.dates.*", "in 292y"},
		{"string", ".spec.list[*].v", "z"},
		{"string", ".spec.list[1].v", "a"},
		{"integer", ".spec.list[*].m.*", int64(1)},
		{"string", `.spec.list[?(@.v=="a")].v`, "a"},
		{"string", ".spec.text.*", nil},
	} {
		tables := newTables([]apiextensionsv1.CustomResourceColumnDefinition{{Name: "C", Type: test.kind, JSONPath: test.path}})
		for range 10 {
			table, err := tables.ConvertToTable(t.Context(), &unstructured.Unstructured{Object: content}, nil)
			expect.NoError(t, err)
			got := table.Rows[0].Cells[1]
			if text, ok := got.(string); ok && test.kind == "date" && test.want != nil && strings.HasPrefix(text, test.want.(string)) {
				continue // and the years
			}
			expect.Equal(t, test.want, got, "%s as %s", test.path, test.kind)
		}
	}
}

// A column that cannot be parsed leaves the name.
func TestTablesOfBadColumns(t *testing.T) {
	t.Parallel()
	table, err := newTables([]apiextensionsv1.CustomResourceColumnDefinition{{Name: "C", Type: "string", JSONPath: ".spec["}}).ConvertToTable(t.Context(), &unstructured.Unstructured{Object: map[string]any{}}, nil)
	expect.NoError(t, err)
	expect.Equal(t, 1, len(table.Rows[0].Cells), "cells")
}
