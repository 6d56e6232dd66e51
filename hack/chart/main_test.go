// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import "testing"

func TestConvert(t *testing.T) {
	t.Parallel()
	tests := map[string]struct{ manifest, want string }{
		"as it is":          {"a: 1 # why\n", "a: 1 # why\n"},
		"namespace":         {"namespace: annex-system\n", "namespace: {{ .Release.Namespace }}\n"},
		"value":             {"spec:\n  replicas: 3 #= {{ .Values.replicas }}\n", "spec:\n  replicas: {{ .Values.replicas }}\n"},
		"value in an item":  {"- image: a:b #= {{ .Values.image }}\n", "- image: {{ .Values.image }}\n"},
		"item":              {"  - --port=1 #= --port={{ .Values.port }}\n", "  - --port={{ .Values.port }}\n"},
		"block":             {"a: #= {{ toYaml .Values.a }}\n  b:\n    c: 1\nd: 2\n", "a: {{ toYaml .Values.a }}\nd: 2\n"},
		"another template":  {"a: \"{{ $value }}\"\n", "a: \"{{ \"{{\" }} $value }}\"\n"},
		"only in the chart": {"  #+ {{- if .Values.a }}\n  #+ a: 1\n  #+ {{- end }}\n", "  {{- if .Values.a }}\n  a: 1\n  {{- end }}\n"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := convert(tc.manifest)
			if err != nil {
				t.Fatal(err)
			}
			if got != tc.want {
				t.Errorf("got\n%s\nwant\n%s", got, tc.want)
			}
		})
	}
}

func TestConvertRefuses(t *testing.T) {
	t.Parallel()
	if got, err := convert("spec #= {{ .Values.spec }}\n"); err == nil {
		t.Errorf("a marker without a value was accepted: %q", got)
	}
}
