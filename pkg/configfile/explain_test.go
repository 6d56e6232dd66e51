// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package configfile

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/apis/apiserver/load"
	"k8s.io/apiserver/pkg/audit/policy"
)

const head = "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthorizationConfiguration\n"

// Errors of upstream's decoders for broken files.
func TestExplainDecoding(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		data string
		want []string
	}{
		"not YAML":             {head + "authorizers: a: b\n", []string{"f:3: mapping values are not allowed in this context"}},
		"first line":           {"a: b: c", []string{"f:1: mapping values are not allowed in this context"}},
		"not JSON":             {"{\"apiVersion\": \"v1\",\n\"kind\": \"x\"\n,}", []string{"f:3: invalid character '}' looking for beginning of object key string"}},
		"key twice":            {head + "authorizers:\n- type: RBAC\n  type: RBAC\n", []string{`f:5: key "type" already set in map`}},
		"unknown fields":       {head + "authorizers:\n- type: RBAC\n  nam: x\n- foo: x\n", []string{"f:5: authorizers[0].nam: unknown field", "f:6: authorizers[1].foo: unknown field"}},
		"field in wrong case":  {head + "authorizers:\n- type: RBAC\n  Name: x\n", []string{"f:5: authorizers[0].Name: unknown field"}},
		"number for a list":    {head + "authorizers: 5\n", []string{"f:3: authorizers: must be a list, not a number"}},
		"number for a string":  {head + "authorizers:\n- name: x\n- webhook:\n    failurePolicy: 3\n", []string{"f:6: authorizers[1].webhook.failurePolicy: must be a string, not a number"}},
		"string for a mapping": {head + "authorizers:\n- RBAC\n", []string{"f:4: authorizers[0]: must be a mapping, not a string"}},
		"no duration":          {head + "authorizers:\n- name: x\n  webhook:\n    timeout: long\n", []string{`f:6: authorizers[0].webhook.timeout: time: invalid duration "long"`}},
		"unknown kind":         {"apiVersion: apiserver.config.k8s.io/v1\n\nkind: Foo\n", []string{`f:3: kind: there is no kind "Foo" of apiVersion "apiserver.config.k8s.io/v1" that could be used here`}},
		"no kind":              {"apiVersion: apiserver.config.k8s.io/v1\nsecret: x\n", []string{"f:1: kind: is missing"}},
		"no version":           {"kind: AuthorizationConfiguration\nsecret: x\n", []string{"f:1: apiVersion: is missing"}},
		"unknown version":      {"kind: x\napiVersion: a/b/c\n", []string{`f:2: apiVersion: "a/b/c" is not a version of an API group`}},
		"no mapping":           {"hello\n", []string{"f:1: must be a mapping with apiVersion and kind"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := load.LoadFromData([]byte(test.data))
			if err == nil {
				t.Fatal("upstream finds nothing wrong")
			}
			wrapped := fmt.Errorf("load it: %w", err)
			if diff := cmp.Diff(strings.Join(test.want, "; "), Explain("f", []byte(test.data), wrapped).Error()); diff != "" {
				t.Errorf("%v (-want +got):\n%s", err, diff)
			}
		})
	}
}

func TestExplainAuditPolicy(t *testing.T) {
	t.Parallel()
	const data = "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules:\n- level: None\n- users: [a]\n  level: Foo\n"
	_, err := policy.LoadPolicyFromBytes([]byte(data))
	const want = `f:6: rules[1].level: Unsupported value: "Foo": supported values: "None", "Metadata", "Request", "RequestResponse"`
	if got := Explain("f", []byte(data), err); got == nil || got.Error() != want {
		t.Errorf("got %v, want %s", got, want)
	}
}

func TestExplain(t *testing.T) {
	t.Parallel()
	const data = `anchor: &anchor
  deep: {value: 1}
list:
- name: first
- name: second
  labels: {"a.b/c": x}
alias: *anchor
`
	root := field.NewPath("list")
	tests := map[string]struct {
		err  error
		want string
	}{
		"nothing":         {nil, ""},
		"a field":         {field.Invalid(root.Index(1).Child("name"), "second", "no"), `f:5: list[1].name: Invalid value: "second": no`},
		"a missing field": {field.Required(root.Index(1).Child("timeout"), ""), "f:5: list[1].timeout: Required value"},
		"an index beyond": {field.Required(root.Index(7).Child("name"), ""), "f:3: list[7].name: Required value"},
		"a key with dots": {field.Invalid(root.Index(1).Child("labels").Key("a.b/c"), "x", "no"), `f:6: list[1].labels[a.b/c]: Invalid value: "x": no`},
		"another case":    {field.Required(field.NewPath("Alias"), ""), "f:7: Alias: Required value"},
		"through alias":   {field.Invalid(field.NewPath("alias", "deep", "value"), 1, "no"), "f:2: alias.deep.value: Invalid value: 1: no"},
		"nothing like it": {field.Required(field.NewPath("other", "deep"), ""), "f:1: other.deep: Required value"},
		"an aggregate": {
			fmt.Errorf("validate: %w", field.ErrorList{field.Required(root, "a"), field.Required(root.Index(0), "b")}.ToAggregate()),
			"f:3: list: Required value: a; f:4: list[0]: Required value: b",
		},
		"joined, one unknown":  {errors.Join(field.Required(root, "a"), errors.New("odd")), "f:3: list: Required value: a; f: odd"},
		"a value of one field": {errors.New(`open "second": no such file`), `f:5: list[1].name: open "second": no such file`},
		"a drawing":            {field.Invalid(root, "x", "failed: ERROR: here\n | x y\n | ..^"), `f:3: list: Invalid value: "x": failed: ERROR: here x y ^`},
		"unknown":              {fmt.Errorf("do this: %w", errors.New("odd")), "f: do this: odd"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := ""
			if err := Explain("f", []byte(data), test.err); err != nil {
				got = err.Error()
			}
			if got != test.want {
				t.Errorf("got  %s\nwant %s", got, test.want)
			}
		})
	}
}

func FuzzExplain(f *testing.F) {
	f.Add(head+"authorizers: [", "list[0].name")
	f.Add("{", "]")
	f.Add("a: &a [*a]", "a[0][0]")
	f.Fuzz(func(t *testing.T, data, path string) {
		_, err := load.LoadFromData([]byte(data))
		for _, err := range []error{err, field.Required(field.NewPath(path), "")} {
			var one *Error
			explained := Explain("f", []byte(data), err)
			if (err == nil) != (explained == nil) {
				t.Errorf("%v became %v", err, explained)
			}
			if errors.As(explained, &one) && (one.Line < 0 || one.Line > 2+strings.Count(data, "\n")+strings.Count(data, "\r")) {
				t.Errorf("line %d of %q", one.Line, data)
			}
		}
	})
}
