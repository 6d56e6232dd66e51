// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured/unstructuredscheme"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"

	"github.com/annex-dev/annex/pkg/test/expect"
)

// testNow is the time of plans.
var testNow = time.Date(2026, 1, 2, 3, 4, 59, 0, time.UTC)

// managedFields returns the JSON of entries: the manager as JSON, the operation, the second of its time, the fields, and the
// subresource if there is one, separated by spaces. Entries that begin with { are JSON.
func managedFields(entries ...string) string {
	texts := make([]string, 0, len(entries))
	for _, entry := range entries {
		if entry[0] != '{' {
			parts := append(strings.Fields(entry), "")
			entry = fmt.Sprintf(`{"apiVersion":"example.com/v1","fieldsType":"FieldsV1","fieldsV1":%s,"manager":%s,"operation":%q`, parts[3], parts[0], parts[1])
			if parts[4] != "" {
				entry += fmt.Sprintf(`,"subresource":%q`, parts[4])
			}
			entry += `,"time":"2026-01-02T03:04:` + parts[2] + `Z"}`
		}
		texts = append(texts, entry)
	}
	return "[" + strings.Join(texts, ",") + "]"
}

// storedGadget returns a Gadget as the watch cache has it. Managed fields may be empty.
func storedGadget(spec, managed string) string {
	if managed != "" {
		managed = `"managedFields":` + managed + `,`
	}
	return `{"apiVersion":"example.com/v1","kind":"Gadget","metadata":{"creationTimestamp":"2026-01-02T03:04:05Z","generation":1,` + managed +
		`"name":"g","namespace":"ns","resourceVersion":"7","uid":"u"},"spec":` + spec + "}\n"
}

// planGadget plans a PUT of a Gadget with another spec, and returns its managed fields.
func planGadget(t *testing.T, s *Schema, current, spec, manager string) (string, error) {
	t.Helper()
	planned, err := s.Plan(t.Context(), []byte(current), Write{Body: []byte(storedGadget(spec, "")), Manager: manager}, testNow)
	if err != nil {
		return "", err
	}
	return membersOf(membersOf(string(planned.Data)).get("metadata")).get("managedFields"), nil
}

// upstreamManager manages fields as upstream's handler of custom resources does.
type upstreamManager struct{ *managedfields.FieldManager }

// sameVersion converts nothing.
type sameVersion struct{ runtime.ObjectConvertor }

func (sameVersion) ConvertToVersion(in runtime.Object, _ runtime.GroupVersioner) (runtime.Object, error) {
	return in, nil
}

func newUpstreamManager(t *testing.T) upstreamManager {
	t.Helper()
	kind := schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Gadget"}
	manager, err := managedfields.NewDefaultCRDFieldManager(upstreamTypes(t), sameVersion{}, unstructuredscheme.NewUnstructuredDefaulter(),
		unstructuredscheme.NewUnstructuredCreator(), kind, kind.GroupVersion(), "", nil)
	expect.NoError(t, err)
	return upstreamManager{manager}
}

// update returns what planGadget returns.
func (m upstreamManager) update(t *testing.T, current, spec, manager string) string {
	t.Helper()
	began := time.Now().Truncate(time.Second)
	var live, updated unstructured.Unstructured
	expect.NoError(t, live.UnmarshalJSON([]byte(current)))
	expect.NoError(t, updated.UnmarshalJSON([]byte(storedGadget(spec, ""))))
	result, err := m.Update(&live, &updated, manager)
	expect.NoError(t, err)
	return membersOf(membersOf(encodedSince(t, began, result)).get("metadata")).get("managedFields")
}

// encodedSince returns the JSON of an object. What its managers have changed since a time has the time of plans.
func encodedSince(t *testing.T, began time.Time, result runtime.Object) string {
	t.Helper()
	object := result.(*unstructured.Unstructured)
	entries := object.GetManagedFields()
	for i := range entries {
		if !entries[i].Time.Time.Before(began) {
			entries[i].Time = &metav1.Time{Time: testNow}
		}
	}
	object.SetManagedFields(entries)
	text, err := json.Marshal(object.Object)
	expect.NoError(t, err)
	return string(text)
}

// TestManagedFields compares managed fields, also with upstream's.
func TestManagedFields(t *testing.T) {
	t.Parallel()
	s, upstream := newSchema(t, gadgets(t, gadgetSchema)), newUpstreamManager(t)
	for name, test := range map[string]struct {
		managed       []string
		before, after string
		want          []string
	}{
		"nothing": {[]string{`"a" Update 01 {"f:spec":{"f:size":{}}}`}, `{"size":1}`, `{"size":1}`, []string{`"a" Update 01 {"f:spec":{"f:size":{}}}`}},
		"gain": {[]string{`"a" Update 01 {"f:spec":{".":{},"f:name":{}}}`}, `{"name":"x"}`, `{"name":"x","size":1}`,
			[]string{`"a" Update 01 {"f:spec":{".":{},"f:name":{}}}`, `"me" Update 59 {"f:spec":{"f:size":{}}}`}},
		"gain more": {[]string{`"me" Update 01 {"f:spec":{".":{},"f:name":{}}}`}, `{"name":"x"}`, `{"name":"x","size":1}`, []string{`"me" Update 59 {"f:spec":{".":{},"f:name":{},"f:size":{}}}`}},
		"change":    {[]string{`"me" Update 01 {"f:spec":{"f:size":{}}}`}, `{"size":1}`, `{"size":2}`, []string{`"me" Update 59 {"f:spec":{"f:size":{}}}`}},
		"loss":      {[]string{`"a" Update 01 {"f:spec":{"f:name":{},"f:size":{}}}`}, `{"name":"x","size":1}`, `{"name":"x"}`, []string{`"a" Update 01 {"f:spec":{"f:name":{}}}`}},
		"own loss":  {[]string{`"me" Update 01 {"f:spec":{"f:name":{},"f:size":{}}}`}, `{"name":"x","size":1}`, `{"name":"x"}`, []string{`"me" Update 01 {"f:spec":{"f:name":{}}}`}},
		"loss of several": {[]string{`"a" Update 01 {"f:spec":{"f:size":{}}}`, `"b" Update 01 {"f:spec":{"f:name":{},"f:size":{}}}`}, `{"name":"x","size":1}`, `{"name":"x"}`,
			[]string{`"b" Update 01 {"f:spec":{"f:name":{}}}`}},
		"take over": {[]string{`"a" Update 01 {"f:spec":{"f:name":{},"f:size":{}}}`}, `{"name":"x","size":1}`, `{"name":"x","size":2}`,
			[]string{`"a" Update 01 {"f:spec":{"f:name":{}}}`, `"me" Update 59 {"f:spec":{"f:size":{}}}`}},
		"take over all":   {[]string{`"a" Update 01 {"f:spec":{"f:size":{}}}`}, `{"size":1}`, `{"size":2}`, []string{`"me" Update 59 {"f:spec":{"f:size":{}}}`}},
		"none left":       {[]string{`"a" Update 01 {"f:spec":{"f:size":{}}}`}, `{"size":1}`, `{}`, nil},
		"from an applier": {[]string{`"me" Apply 01 {"f:spec":{"f:name":{},"f:size":{}}}`}, `{"name":"x","size":1}`, `{"name":"x","size":2}`, []string{`"me" Apply 01 {"f:spec":{"f:name":{}}}`, `"me" Update 59 {"f:spec":{"f:size":{}}}`}},
		"beside a subresource": {[]string{`"me" Update 01 {"f:spec":{"f:size":{}},"f:status":{".":{},"f:phase":{}}} status`}, `{"size":1}`, `{"size":2}`,
			[]string{`"me" Update 01 {"f:status":{".":{},"f:phase":{}}} status`, `"me" Update 59 {"f:spec":{"f:size":{}}}`}},
		"order": {[]string{`"z" Apply 02 {"f:spec":{"f:name":{}}}`, `"me" Update 01 {"f:spec":{"f:name":{}}}`, `"z" Update 01 {"f:spec":{"f:name":{}}}`, `"b" Update 02 {"f:spec":{"f:name":{}}}`},
			`{"name":"x"}`, `{"name":"x","size":2}`,
			[]string{`"z" Apply 02 {"f:spec":{"f:name":{}}}`, `"z" Update 01 {"f:spec":{"f:name":{}}}`, `"b" Update 02 {"f:spec":{"f:name":{}}}`, `"me" Update 59 {"f:spec":{"f:name":{},"f:size":{}}}`}},
		"items": {[]string{`"a" Update 01 {"f:spec":{"f:ports":{".":{},"k:{\"name\":\"a\",\"port\":1}":{".":{},"f:mode":{},"f:name":{},"f:port":{}}},"f:tags":{".":{},"v:\"x\"":{},"v:\"z\"":{}}}}`},
			`{"ports":[{"mode":"x","name":"a","port":1}],"tags":["x","z"]}`, `{"ports":[{"mode":"y","name":"a","port":1}],"tags":["z"]}`,
			[]string{`"a" Update 01 {"f:spec":{"f:ports":{".":{},"k:{\"name\":\"a\",\"port\":1}":{".":{},"f:name":{},"f:port":{}}},"f:tags":{".":{},"v:\"z\"":{}}}}`,
				`"me" Update 59 {"f:spec":{"f:ports":{"k:{\"name\":\"a\",\"port\":1}":{"f:mode":{}}}}}`}},
		"removed with its fields": {[]string{`"a" Update 01 {"f:spec":{"f:deep":{".":{},"f:a":{".":{},"f:x":{}}},"f:size":{}}}`}, `{"deep":{"a":{"x":"1"}},"size":1}`, `{"size":1}`, []string{`"a" Update 01 {"f:spec":{"f:size":{}}}`}},
		"removed without fields":  {[]string{`"a" Update 01 {"f:spec":{"f:deep":{".":{},"f:a":{}}}}`}, `{"deep":{}}`, `{}`, []string{`"a" Update 01 {"f:spec":{"f:deep":{"f:a":{}}}}`}},
		"labels":                  {[]string{`"a" Update 01 {"f:metadata":{"f:labels":{".":{},"f:a.b/c":{}}},"f:spec":{"f:size":{}}}`}, `{"size":1}`, `{"size":2}`, []string{`"a" Update 01 {"f:metadata":{"f:labels":{".":{},"f:a.b/c":{}}}}`, `"me" Update 59 {"f:spec":{"f:size":{}}}`}},
		"unknown fields":          {[]string{`"a" Update 01 {"f:spec":{"f:open":{".":{},"f:any":{".":{},"f:x":{}}}}}`}, `{"open":{"any":{"x":1}}}`, `{"open":{"any":{"x":2}}}`, []string{`"a" Update 01 {"f:spec":{"f:open":{".":{},"f:any":{}}}}`, `"me" Update 59 {"f:spec":{"f:open":{"f:any":{"f:x":{}}}}}`}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			current, want := storedGadget(test.before, managedFields(test.managed...)), ""
			if len(test.want) > 0 {
				want = managedFields(test.want...)
			}
			got, err := planGadget(t, s, current, test.after, "me")
			expect.NoError(t, err)
			expect.Equal(t, want, got)
			expect.Equal(t, want, upstream.update(t, current, test.after, "me"), "upstream")
		})
	}
}

// TestOrderOfManagers encodes entries from the last to the first.
func TestOrderOfManagers(t *testing.T) {
	t.Parallel()
	s := newSchema(t, gadgets(t, gadgetSchema))
	want := managedFields(`"z" Apply 02 {}`, `"z" Update 01 {}`, `"!" Update 02 {}`, `"\"" Update 02 {}`, `"#" Update 02 {}`, `"\u003c" Update 02 {}`,
		`"=" Update 02 {}`, `"A" Update 02 {}`, `"A" Update 02 {} status`, `"\\" Update 02 {}`, `"a" Update 02 {}`)
	entries, err := s.entriesOf(want)
	expect.NoError(t, err)
	slices.Reverse(entries)
	expect.Equal(t, want, s.encode(entries))
}

// TestManagers writes twice with names that JSON escapes, and with none.
func TestManagers(t *testing.T) {
	t.Parallel()
	s, upstream := newSchema(t, gadgets(t, gadgetSchema)), newUpstreamManager(t)
	for _, manager := range []string{"", "unknown", `a"`, `a\`, `a\"`, `"`, "<a>&", "é", "\u2028", "a b", "😀"} {
		t.Run(manager, func(t *testing.T) {
			t.Parallel()
			current := storedGadget(`{"size":1}`, managedFields(`"other" Update 01 {"f:spec":{".":{},"f:name":{},"f:size":{}}}`))
			for _, spec := range []string{`{"size":2}`, `{"name":"x","size":3}`} {
				got, err := planGadget(t, s, current, spec, manager)
				expect.NoError(t, err)
				expect.Equal(t, upstream.update(t, current, spec, manager), got)
				current = storedGadget(spec, got)
			}
			expect.Equal(t, 2, len(itemsOf(membersOf(membersOf(current).get("metadata")).get("managedFields"))), "entries")
		})
	}
}

// TestManyManagers adds one to as many as upstream keeps, and lets one of them write again.
func TestManyManagers(t *testing.T) {
	t.Parallel()
	s := newSchema(t, gadgets(t, gadgetSchema))
	entries := make([]string, 0, maxEntries)
	for i := range maxEntries {
		entries = append(entries, fmt.Sprintf(`"m%d" Update 01 {"f:spec":{"f:name":{}}}`, i))
	}
	current := storedGadget(`{"name":"x"}`, managedFields(entries...))
	_, err := planGadget(t, s, current, `{"name":"x","size":1}`, "m10")
	expect.Equal(t, errManagedFields, err)
	got, err := planGadget(t, s, current, "{}", "m10")
	expect.NoError(t, err)
	expect.Equal(t, "", got, "after a removal")
	got, err = planGadget(t, s, current, `{"name":"x","size":1}`, "m3")
	expect.NoError(t, err)
	changed := append(slices.Delete(slices.Clone(entries), 3, 4), `"m3" Update 59 {"f:spec":{"f:name":{},"f:size":{}}}`)
	expect.Equal(t, managedFields(changed...), got)
	expect.Equal(t, got, newUpstreamManager(t).update(t, current, `{"name":"x","size":1}`, "m3"), "upstream")
}

// TestUnsureManagers has managed fields that upstream replaces before it uses them.
func TestUnsureManagers(t *testing.T) {
	t.Parallel()
	s := newSchema(t, gadgets(t, gadgetSchema))
	const (
		begin = `{"apiVersion":"example.com/v1","fieldsType":"FieldsV1",`
		end   = `"manager":"a","operation":"Update","time":"2026-01-02T03:04:01Z"}`
	)
	for name, managed := range map[string]string{
		"none":                  "",
		"no entry":              "[]",
		"another apiVersion":    managedFields(strings.Replace(begin, "v1", "v2", 1) + `"fieldsV1":{"f:spec":{"f:size":{}}},` + end),
		"no apiVersion":         managedFields(`{"fieldsType":"FieldsV1","fieldsV1":{"f:spec":{"f:size":{}}},` + end),
		"no fields":             managedFields(begin + end),
		"no time":               managedFields(begin + `"fieldsV1":{"f:spec":{"f:size":{}}},"manager":"a","operation":"Update"}`),
		"no manager":            managedFields(begin + `"fieldsV1":{"f:spec":{"f:size":{}}},"operation":"Update","time":"2026-01-02T03:04:01Z"}`),
		"unknown field":         managedFields(`"a" Update 01 {"f:spec":{"f:unknown":{}}}`),
		"unknown field at root": managedFields(`"a" Update 01 {"f:unknown":{}}`),
		"below a scalar":        managedFields(`"a" Update 01 {"f:spec":{"f:size":{"f:x":{}}}}`),
		"below an atomic map":   managedFields(`"a" Update 01 {"f:spec":{"f:solid":{"f:a":{}}}}`),
		"below an atomic list":  managedFields(`"a" Update 01 {"f:spec":{"f:args":{"v:\"a\"":{}}}}`),
		"item of an object":     managedFields(`"a" Update 01 {"f:spec":{"f:deep":{"v:\"a\"":{}}}}`),
		"unknown in an item":    managedFields(`"a" Update 01 {"f:spec":{"f:ports":{"k:{\"name\":\"a\",\"port\":1}":{"f:unknown":{}}}}}`),
		"second entry":          managedFields(`"a" Update 01 {"f:spec":{"f:size":{}}}`, `"b" Update 01 {"f:unknown":{}}`),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, spec := range []string{`{"size":1}`, `{"size":2}`} {
				if got, err := planGadget(t, s, storedGadget(`{"size":1}`, managed), spec, "me"); !errors.Is(err, errManagedFields) {
					t.Errorf("with %s: %s, error %v", spec, got, err)
				}
			}
		})
	}
}

// TestManyChanges changes more fields than are looked up in the managed fields one by one.
func TestManyChanges(t *testing.T) {
	t.Parallel()
	s := newSchema(t, gadgets(t, gadgetSchema))
	fields := map[string]int{}
	for i := range 40_000 {
		fields[fmt.Sprint(i)] = i
	}
	body, err := json.Marshal(map[string]any{"spec": map[string]any{"open": fields}})
	expect.NoError(t, err)
	_, err = s.Plan(t.Context(), []byte(gadgetWith("")+"\n"), patch(string(body)), testNow)
	expect.Equal(t, error(errManagedFields), err)
}
