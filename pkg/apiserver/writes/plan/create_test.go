// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"errors"
	"regexp"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"github.com/annex-dev/annex/pkg/test/expect"
)

func newGadget(metadata, more string) Write {
	return Write{Body: []byte(`{"kind":"Gadget","apiVersion":"example.com/v1","metadata":{` + metadata + `}` + more + `}`), Manager: "me"}
}

// TestCreate has the objects that are stored, without apiVersion, kind, and what the server gives all.
func TestCreate(t *testing.T) {
	t.Parallel()
	s := newSchema(t, gadgets(t, gadgetSchema))
	const (
		begin = `{"apiVersion":"example.com/v1","kind":"Gadget","metadata":{`
		given = `"creationTimestamp":"2026-01-02T03:04:59Z",`
		end   = `"name":"g","namespace":"ns",`
	)
	managed := func(fields string) string { return `"managedFields":` + managedFields(`"me" Update 59 `+fields) + `,` }
	for name, test := range map[string]struct {
		write Write
		want  string
	}{
		"name alone": {newGadget(`"name":"g"`, ""), begin + given + `"generation":1,` + end + `"uid":"u"}}`},
		"spec": {newGadget(`"name":"g","namespace":"ns","creationTimestamp":null`, `,"spec":{"size":1}`),
			begin + given + `"generation":1,` + managed(`{"f:spec":{".":{},"f:size":{}}}`) + end + `"uid":"u"},"spec":{"size":1}}`},
		"empty spec": {newGadget(`"name":"g"`, `,"spec":{}`), begin + given + `"generation":1,` + managed(`{"f:spec":{}}`) + end + `"uid":"u"},"spec":{}}`},
		"status":     {newGadget(`"name":"g"`, `,"status":{"phase":"new"}`), begin + given + `"generation":1,` + end + `"uid":"u"}}`},
		"labels": {newGadget(`"name":"g","labels":{"a":"b"},"annotations":{}`, ""),
			begin + given + `"generation":1,"labels":{"a":"b"},` + managed(`{"f:metadata":{"f:labels":{".":{},"f:a":{}}}}`) + end + `"uid":"u"}}`},
		"finalizers": {newGadget(`"name":"g","finalizers":["a/b"]`, ""),
			begin + given + `"finalizers":["a/b"],"generation":1,` + managed(`{"f:metadata":{"f:finalizers":{".":{},"v:\"a/b\"":{}}}}`) + end + `"uid":"u"}}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			planned, err := s.Create(t.Context(), test.write, "ns", "u", testNow)
			expect.NoError(t, err)
			expect.Equal(t, test.want+"\n", string(planned.Data))
			expect.Equal(t, "g", planned.Name)
		})
	}
}

// TestCreateInNoNamespace creates an object of a resource without namespaces.
func TestCreateInNoNamespace(t *testing.T) {
	t.Parallel()
	definition := gadgets(t, gadgetSchema)
	definition.Spec.Scope = apiextensionsv1.ClusterScoped
	s := newSchema(t, definition)
	planned, err := s.Create(t.Context(), newGadget(`"name":"g","namespace":""`, ""), "", "u", testNow)
	expect.NoError(t, err)
	expect.Equal(t, "", membersOf(membersOf(string(planned.Data)).get("metadata")).get("namespace"))
	_, err = s.Create(t.Context(), newGadget(`"name":"g","namespace":"ns"`, ""), "", "u", testNow)
	if !errors.Is(err, errMetadata) {
		t.Errorf("an object with a namespace: %v", err)
	}
}

// TestCreateGenerated generates names as upstream does.
func TestCreateGenerated(t *testing.T) {
	t.Parallel()
	s := newSchema(t, gadgets(t, gadgetSchema))
	for prefix, want := range map[string]string{
		"g": `g[a-z0-9]{5}`, "g-": `g-[a-z0-9]{5}`, "a.b-": `a\.b-[a-z0-9]{5}`, strings.Repeat("g", 70): `g{58}[a-z0-9]{5}`,
	} {
		for _, name := range []string{"", `"name":"",`} {
			planned, err := s.Create(t.Context(), newGadget(name+`"generateName":"`+prefix+`"`, ""), "ns", "u", testNow)
			expect.NoError(t, err)
			metadata := membersOf(membersOf(string(planned.Data)).get("metadata"))
			if !planned.Generated || !regexp.MustCompile(`^`+want+`$`).MatchString(planned.Name) {
				t.Errorf("prefix %s: planned %q, generated %t", prefix, planned.Name, planned.Generated)
			}
			expect.Equal(t, `"`+planned.Name+`"`, metadata.get("name"))
			expect.Equal(t, `"`+prefix+`"`, metadata.get("generateName"))
			expect.Equal(t, managedFields(`"me" Update 59 {"f:metadata":{"f:generateName":{}}}`), metadata.get("managedFields"))
		}
	}
	planned, err := s.Create(t.Context(), newGadget(`"generateName":"g","labels":{"a":"b"}`, `,"spec":{"size":1}`), "ns", "u", testNow)
	expect.NoError(t, err)
	expect.Equal(t, managedFields(`"me" Update 59 {"f:metadata":{"f:generateName":{},"f:labels":{".":{},"f:a":{}}},"f:spec":{".":{},"f:size":{}}}`),
		membersOf(membersOf(string(planned.Data)).get("metadata")).get("managedFields"))
	planned, err = s.Create(t.Context(), newGadget(`"name":"g","generateName":""`, ""), "ns", "u", testNow)
	expect.NoError(t, err)
	expect.Equal(t, false, planned.Generated, "a name with an empty prefix")
}

// TestUnsureOfNew has a row for what is not created, by reason.
func TestUnsureOfNew(t *testing.T) {
	t.Parallel()
	s := newSchema(t, gadgets(t, gadgetSchema))
	for reason, tests := range map[Unsure]map[string]Write{
		ErrBody: {"nothing": {}, "array": {Body: []byte("[]")}, "key twice": newGadget(`"name":"g"`, `,"spec":{},"spec":{}`)},
		errIdentity: {
			"no metadata": {Body: []byte(`{"kind":"Gadget","apiVersion":"example.com/v1"}`)},
			"kind":        {Body: []byte(`{"kind":"Widget","apiVersion":"example.com/v1","metadata":{"name":"g"}}`)},
		},
		errMetadata: {
			"no name":           newGadget("", ""),
			"empty name":        newGadget(`"name":""`, ""),
			"name, number":      newGadget(`"name":1`, ""),
			"bad name":          newGadget(`"name":"G g"`, ""),
			"name and prefix":   newGadget(`"name":"g","generateName":"g"`, ""),
			"bad prefix":        newGadget(`"generateName":"G"`, ""),
			"prefix, number":    newGadget(`"generateName":1`, ""),
			"another namespace": newGadget(`"name":"g","namespace":"other"`, ""),
			"UID":               newGadget(`"name":"g","uid":"u"`, ""),
			"version":           newGadget(`"name":"g","resourceVersion":"7"`, ""),
			"empty version":     newGadget(`"name":"g","resourceVersion":""`, ""),
			"generation":        newGadget(`"name":"g","generation":7`, ""),
			"creation":          newGadget(`"name":"g","creationTimestamp":"2026-01-02T03:04:05Z"`, ""),
			"deletion":          newGadget(`"name":"g","deletionTimestamp":"2026-01-02T03:04:05Z"`, ""),
			"managed fields":    newGadget(`"name":"g","managedFields":[]`, ""),
			"unknown":           newGadget(`"name":"g","x":"y"`, ""),
			"label":             newGadget(`"name":"g","labels":{"a":"b c"}`, ""),
			"finalizer":         newGadget(`"name":"g","finalizers":["a"]`, ""),
			"owner":             newGadget(`"name":"g","ownerReferences":[{"apiVersion":"","kind":"A","name":"a","uid":"a"}]`, ""),
		},
		errManagedFields: {
			"name not UTF-8": {Body: newGadget(`"name":"g"`, "").Body, Manager: "a\xff"},
			"unknown field":  newGadget(`"name":"g"`, `,"spec":{"x":1}`),
			"null":           newGadget(`"name":"g"`, `,"other":null`),
		},
		errSchema: {
			"type":       newGadget(`"name":"g"`, `,"spec":{"size":"1"}`),
			"rule":       newGadget(`"name":"g"`, `,"spec":{"size":13}`),
			"bad status": newGadget(`"name":"g"`, `,"status":{"x":1}`),
			"items":      newGadget(`"name":"g"`, `,"items":[]`),
		},
	} {
		for name, w := range tests {
			planned, err := s.Create(t.Context(), w, "ns", "u", testNow)
			if !errors.Is(err, reason) {
				t.Errorf("%s/%s: planned %+v, error %v", reason, name, planned, err)
			}
		}
	}
}
