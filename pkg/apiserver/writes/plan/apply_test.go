// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"errors"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/annex-dev/annex/pkg/test/expect"
)

// config returns an apply configuration of the Gadget g.
func config(spec string) string {
	return `{"kind":"Gadget","apiVersion":"example.com/v1","metadata":{"name":"g"},"spec":` + spec + `}`
}

// apply returns an object after an apply by upstream. What it changes now has the time of plans, and all before another one.
func (m upstreamManager) apply(t *testing.T, current, config, manager string, force bool) string {
	t.Helper()
	began := time.Now().Truncate(time.Second)
	var live, applied unstructured.Unstructured
	expect.NoError(t, live.UnmarshalJSON([]byte(current)))
	expect.NoError(t, applied.UnmarshalJSON([]byte(config)))
	result, err := m.Apply(&live, &applied, manager, force)
	expect.NoError(t, err)
	return encodedSince(t, began, result) + "\n"
}

// TestApply applies two configurations of the same fields. The first one is upstream's, and so is the wanted result of the
// second one.
func TestApply(t *testing.T) {
	t.Parallel()
	s, upstream := newSchema(t, gadgets(t, gadgetSchema)), newUpstreamManager(t)
	for name, test := range map[string]struct{ stored, first, second string }{
		"new manager":       {`{"name":"x"}`, "", `{"size":1}`},
		"the same":          {`{"name":"x"}`, `{"size":1}`, `{"size":1}`},
		"scalar":            {`{"name":"x"}`, `{"size":1}`, `{"size":2}`},
		"fields of maps":    {`{"deep":{"a":{"z":"0"}}}`, `{"deep":{"a":{"x":"1"}}}`, `{"deep":{"a":{"x":"2"}}}`},
		"atomic map":        {`{"solid":{"a":"1","b":"1"}}`, `{"solid":{"a":"1"}}`, `{"solid":{"b":"2"}}`},
		"keys of a map":     {`{"flags":{"a":true}}`, `{"flags":{"b":true}}`, `{"flags":{"b":false}}`},
		"empty maps":        {`{"name":"x"}`, `{"flags":{},"deep":{"a":{}},"size":1}`, `{"flags":{},"deep":{"a":{}},"size":2}`},
		"empty lists":       {`{"name":"x"}`, `{"tags":[],"ports":[],"args":[],"size":1}`, `{"tags":[],"ports":[],"args":[],"size":2}`},
		"atomic list":       {`{"args":["x"]}`, `{"args":["y"]}`, `{"args":["y","x"]}`},
		"set":               {`{"tags":["a","c","e"]}`, `{"tags":["b","d"],"size":1}`, `{"tags":["b","d"],"size":2}`},
		"items":             {`{"ports":[{"name":"a","port":1}]}`, `{"ports":[{"name":"b","port":1,"mode":"x"}]}`, `{"ports":[{"name":"b","port":1,"mode":"y"}]}`},
		"part of the items": {`{"ports":[{"name":"a","port":1},{"name":"b","port":1},{"name":"c","port":2}]}`, `{"ports":[{"name":"a","port":1,"mode":"x"},{"name":"c","port":2,"mode":"x"}]}`, `{"ports":[{"name":"a","port":1,"mode":"y"},{"name":"c","port":2,"mode":"z"}]}`},
		"unknown fields":    {`{"open":{"other":1}}`, `{"open":{"a":{"b":1,"c":[{"d":1}]}},"raw":{"x":{"y":"z"}}}`, `{"open":{"a":{"b":2,"c":[{"d":2}]}},"raw":{"x":{"y":"w"}}}`},
		"more fields":       {`{"name":"x"}`, `{"size":1}`, `{"flags":{"a":true},"size":1}`},
		"more, no change":   {`{"name":"x"}`, `{"size":1}`, `{"name":"x","size":1}`},
		"new fields below":  {`{"name":"x"}`, `{"deep":{"a":{"x":"1"}}}`, `{"deep":{"a":{"x":"1","z":"2"}},"tags":["a"]}`},
		"either":            {`{"either":"a"}`, `{"either":"b"}`, `{"either":1}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			current := storedGadget(test.stored, managedFields(`"other" Update 01 {"f:spec":{"f:name":{}}}`))
			if test.first != "" {
				current = upstream.apply(t, current, config(test.first), "me", true)
			}
			current = strings.ReplaceAll(current, "03:04:59Z", "03:04:30Z")
			want := membersOf(upstream.apply(t, current, config(test.second), "me", false))
			planned, err := s.Plan(t.Context(), []byte(current), Write{Body: []byte(config(test.second)), Apply: true, Manager: "me"}, testNow)
			expect.NoError(t, err)
			got := membersOf(string(planned.Data))
			expect.Equal(t, want.get("spec"), got.get("spec"))
			expect.Equal(t, membersOf(want.get("metadata")).get("managedFields"), membersOf(got.get("metadata")).get("managedFields"))
		})
	}
}

// TestForcedApply takes a field over, which is a conflict otherwise.
func TestForcedApply(t *testing.T) {
	t.Parallel()
	s, upstream := newSchema(t, gadgets(t, gadgetSchema)), newUpstreamManager(t)
	current := storedGadget(`{"name":"x","size":1}`, managedFields(`"me" Apply 30 {"f:spec":{"f:size":{}}}`,
		`"a" Update 30 {"f:spec":{"f:size":{}}}`, `"b" Update 30 {"f:spec":{"f:name":{},"f:size":{}}}`, `"me" Update 30 {"f:spec":{"f:size":{}}}`))
	apply := func(force bool) (*Planned, error) {
		return s.Plan(t.Context(), []byte(current), Write{Body: []byte(config(`{"size":2}`)), Apply: true, Force: force, Manager: "me"}, testNow)
	}
	_, err := apply(false)
	expect.Equal(t, errManagedFields, err, "a conflict")
	planned, err := apply(true)
	expect.NoError(t, err)
	want := membersOf(upstream.apply(t, current, config(`{"size":2}`), "me", true))
	expect.Equal(t, membersOf(want.get("metadata")).get("managedFields"), membersOf(membersOf(string(planned.Data)).get("metadata")).get("managedFields"))
}

// TestApplyToItemsTwice leaves finalizers that are stored twice to upstream, which merges them.
func TestApplyToItemsTwice(t *testing.T) {
	t.Parallel()
	s := newSchema(t, gadgets(t, gadgetSchema))
	w := Write{Body: []byte(`{"kind":"Gadget","apiVersion":"example.com/v1","metadata":{"name":"g","finalizers":["a/b"]},"spec":{"size":2}}`), Apply: true, Force: true, Manager: "me"}
	_, err := s.Plan(t.Context(), []byte(gadgetWith(`"finalizers":["a/b","a/b"],`)+"\n"), w, testNow)
	expect.Equal(t, errManagedFields, err)
	_, err = s.Plan(t.Context(), []byte(gadgetWith(`"finalizers":["a/b","a/c"],`)+"\n"), w, testNow)
	expect.NoError(t, err)
}

// TestUnsureApply has a row for what is not planned, by reason.
func TestUnsureApply(t *testing.T) {
	t.Parallel()
	s := newSchema(t, gadgets(t, gadgetSchema))
	const begin = `{"apiVersion":"example.com/v1","kind":"Gadget","metadata":{"name":"g"`
	current := storedGadget(`{"name":"x","ports":[{"name":"a","port":1},{"name":"b","port":1}],"size":1}`, managedFields(`"kubectl" Apply 01 {"f:spec":{"f:size":{}}}`,
		`"me" Apply 01 {"f:spec":{"f:size":{}}}`, `"status" Apply 01 {"f:status":{"f:phase":{}}} status`))
	for reason, tests := range map[Unsure]map[string]Write{
		ErrBody: {
			"YAML":            {Body: []byte("apiVersion: example.com/v1\nkind: Gadget")},
			"escaped":         {Body: []byte(config(`{"name":"\u0061"}`))},
			"beyond ASCII":    {Body: []byte(config(`{"name":"é"}`))},
			"tab":             {Body: []byte(config("{\t}"))},
			"carriage return": {Body: []byte(config("{}\r"))},
		},
		errIdentity: {
			"kind":        {Body: []byte(`{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"g"}}`)},
			"no kind":     {Body: []byte(`{"apiVersion":"example.com/v1","metadata":{"name":"g"}}`)},
			"no metadata": {Body: []byte(`{"apiVersion":"example.com/v1","kind":"Gadget"}`)},
		},
		errMetadata: {
			"version":          {Body: []byte(begin + `,"resourceVersion":"7"}}`)},
			"managed fields":   {Body: []byte(begin + `,"managedFields":[]}}`)},
			"empty labels":     {Body: []byte(begin + `,"labels":{}}}`)},
			"UID":              {Body: []byte(begin + `,"uid":"u"}}`)},
			"labels of status": {Body: []byte(begin + `,"labels":{"a":"b"}}}`), Status: true},
		},
		errSchema: {
			"status":         {Body: []byte(begin + `},"status":{"phase":"x"}}`)},
			"spec of status": {Body: []byte(begin + `},"spec":{"size":1}}`), Status: true},
			"rule":           {Body: []byte(config(`{"size":13}`)), Force: true},
			"type":           {Body: []byte(config(`{"size":"1"}`)), Force: true},
		},
		errManagedFields: {
			"fewer fields":    {Body: []byte(config(`{}`))},
			"other fields":    {Body: []byte(config(`{"name":"x"}`))},
			"unknown field":   {Body: []byte(config(`{"x":1}`))},
			"null":            {Body: []byte(config(`{"size":null}`))},
			"another kind":    {Body: []byte(config(`{"ports":{}}`))},
			"new item":        {Body: []byte(config(`{"ports":[{"name":"c","port":1}]}`))},
			"order of items":  {Body: []byte(config(`{"ports":[{"name":"b","port":1},{"name":"a","port":1}]}`))},
			"item twice":      {Body: []byte(config(`{"ports":[{"name":"a","port":1},{"name":"a","port":1}]}`))},
			"new, no change":  {Body: []byte(config(`{"size":1}`)), Manager: "new"},
			"kubectl":         {Body: []byte(config(`{"size":2}`)), Manager: "kubectl"},
			"manager of both": {Body: []byte(config(`{"size":2}`)), Manager: "status"},
		},
	} {
		for name, w := range tests {
			w.Apply = true
			if w.Manager == "" {
				w.Manager = "me"
			}
			planned, err := s.Plan(t.Context(), []byte(current), w, testNow)
			if !errors.Is(err, reason) {
				t.Errorf("%s/%s: planned %+v, error %v", reason, name, planned, err)
			}
		}
	}
}
