// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"errors"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/annex-dev/annex/pkg/test/expect"
)

// gadget is stored in TestPlan and TestUnsure: MORE is in the metadata, and there is a status.
const gadget = `{"apiVersion":"example.com/v1","kind":"Gadget","metadata":{"annotations":{"a":"1"},"creationTimestamp":"2026-01-02T03:04:05Z",MORE"generation":4,` +
	`"managedFields":[{"apiVersion":"example.com/v1","fieldsType":"FieldsV1","fieldsV1":{"f:spec":{".":{},"f:size":{}}},"manager":"me","operation":"Update","time":"2026-01-02T03:04:01Z"}],` +
	`"name":"g","namespace":"ns","resourceVersion":"7","uid":"u"},"spec":{"size":1},"status":{"phase":"new"}}`

func gadgetWith(metadata string) string { return strings.Replace(gadget, "MORE", metadata, 1) }

// write returns the body of a PUT of gadget in which texts are replaced, by pairs.
func write(replaced ...string) Write {
	return Write{Body: []byte(strings.NewReplacer(append(replaced, "MORE", "")...).Replace(gadget)), Manager: "me"}
}

func patch(body string) Write { return Write{Body: []byte(body), Patch: true, Manager: "me"} }

func (w Write) ofStatus() Write {
	w.Status = true
	return w
}

// TestPlan checks what is stored besides managed fields.
func TestPlan(t *testing.T) {
	t.Parallel()
	s := newSchema(t, gadgets(t, gadgetSchema))
	for name, test := range map[string]struct {
		write Write
		want  map[string]string // by field; the others are as in gadget
	}{
		"nothing":                  {write(), nil},
		"white space":              {Write{Body: []byte(strings.ReplaceAll(gadgetWith(""), ",", " ,\n")), Manager: "me"}, nil},
		"spec":                     {write(`"size":1`, `"size":2`), map[string]string{"spec": `{"size":2}`, "generation": "5"}},
		"no spec":                  {write(`"spec":{"size":1},`, ""), map[string]string{"spec": "", "generation": "5"}},
		"status, ignored":          {write(`"new"`, `"old"`), nil},
		"no status, ignored":       {write(`,"status":{"phase":"new"}`, ""), nil},
		"annotations":              {write(`"annotations":{"a":"1"}`, `"annotations":{"b":"\u0062"}`), map[string]string{"annotations": `{"b":"b"}`}},
		"no annotations":           {write(`"annotations":{"a":"1"},`, ""), map[string]string{"annotations": ""}},
		"empty annotations":        {write(`"annotations":{"a":"1"}`, `"annotations":{}`), map[string]string{"annotations": ""}},
		"null annotations":         {write(`"annotations":{"a":"1"}`, `"annotations":null`), map[string]string{"annotations": ""}},
		"labels":                   {write(`"name":"g"`, `"labels":{"x":"y"},"name":"g"`), map[string]string{"labels": `{"x":"y"}`}},
		"another generation":       {write(`"generation":4`, `"generation":9`), nil},
		"no generation":            {write(`"generation":4,`, ""), nil},
		"no managed fields":        {write(gadget[strings.Index(gadget, `"managedFields"`):strings.Index(gadget, `"name"`)], ""), nil},
		"empty identity":           {write(`"creationTimestamp":"2026-01-02T03:04:05Z"`, `"creationTimestamp":null`, `"uid":"u"`, `"selfLink":"","uid":""`, `"namespace":"ns"`, `"generateName":"","namespace":"ns"`), nil},
		"no namespace":             {write(`"namespace":"ns",`, ""), nil},
		"status of the status":     {write(`"new"`, `"old"`).ofStatus(), map[string]string{"status": `{"phase":"old"}`}},
		"no status of the status":  {write(`,"status":{"phase":"new"}`, "").ofStatus(), map[string]string{"status": ""}},
		"spec, ignored":            {write(`"size":1`, `"size":2`).ofStatus(), nil},
		"finalizers":               {patch(`{"metadata":{"finalizers":["a/b"]}}`), map[string]string{"finalizers": `["a/b"]`}},
		"empty finalizers":         {patch(`{"metadata":{"finalizers":[]}}`), nil},
		"owners":                   {patch(`{"metadata":{"ownerReferences":[{"uid":"a","apiVersion":"v1","kind":"A","name":"a"}]}}`), map[string]string{"ownerReferences": `[{"apiVersion":"v1","kind":"A","name":"a","uid":"a"}]`}},
		"empty patch":              {patch(`{}`), nil},
		"patch":                    {patch(`{"spec":{"name":"x"}}`), map[string]string{"spec": `{"name":"x","size":1}`, "generation": "5"}},
		"patch with a version":     {patch(`{"metadata":{"resourceVersion":"7"},"spec":{"size":null}}`), map[string]string{"spec": "{}", "generation": "5"}},
		"patch of annotations":     {patch(`{"metadata":{"annotations":{"a":null,"b":"2"}}}`), map[string]string{"annotations": `{"b":"2"}`}},
		"patch of all annotations": {patch(`{"metadata":{"annotations":{"a":null}}}`), map[string]string{"annotations": ""}},
		"patch of the status":      {patch(`{"status":{"phase":"old"}}`).ofStatus(), map[string]string{"status": `{"phase":"old"}`}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			planned, err := s.Plan(t.Context(), []byte(gadgetWith("")+"\n"), test.write, testNow)
			expect.NoError(t, err)
			want := strings.Replace(gadgetWith(""), `"resourceVersion":"7",`, "", 1)
			if len(test.want) == 0 {
				expect.Equal(t, want+"\n", string(planned.Data))
			}
			before, after := fieldsIn(want), fieldsIn(strings.TrimSuffix(string(planned.Data), "\n"))
			delete(before, "managedFields")
			delete(after, "managedFields")
			for name, value := range test.want {
				if before[name] = value; value == "" {
					delete(before, name)
				}
			}
			expect.Equal(t, before, after)
		})
	}
}

// TestPlanOfDying changes an object that is being deleted.
func TestPlanOfDying(t *testing.T) {
	t.Parallel()
	s := newSchema(t, gadgets(t, gadgetSchema))
	const dying = `"deletionGracePeriodSeconds":0,"deletionTimestamp":"2026-01-02T03:04:05Z","finalizers":["a/b","c/d"],`
	for name, test := range map[string]struct {
		write       Write
		field, want string
		deletes     bool
	}{
		"status":            {patch(`{"status":{"phase":"old"}}`).ofStatus(), "status", `{"phase":"old"}`, false},
		"spec":              {patch(`{"spec":{"size":2}}`), "spec", `{"size":2}`, false},
		"finalizer removed": {patch(`{"metadata":{"finalizers":["c/d"]}}`), "finalizers", `["c/d"]`, false},
		"all removed":       {patch(`{"metadata":{"finalizers":null}}`), "finalizers", "", true},
		"all replaced":      {patch(`{"metadata":{"finalizers":[]},"spec":{"size":2}}`), "spec", `{"size":2}`, true},
	} {
		planned, err := s.Plan(t.Context(), []byte(gadgetWith(dying)+"\n"), test.write, testNow)
		expect.NoError(t, err, name)
		fields := fieldsIn(strings.TrimSuffix(string(planned.Data), "\n"))
		expect.Equal(t, test.want, fields[test.field], name)
		expect.Equal(t, `"2026-01-02T03:04:05Z"`, fields["deletionTimestamp"], name)
		expect.Equal(t, test.deletes, planned.Deletes, name)
	}
}

// TestMarkDeleted compares the metadata of objects that are marked as deleted.
func TestMarkDeleted(t *testing.T) {
	t.Parallel()
	s := newSchema(t, gadgets(t, gadgetSchema))
	const first, deleted = `"finalizers":["a/b"],`, `"deletionTimestamp":"2026-01-02T03:04:05Z",`
	for name, test := range map[string]struct {
		more       string
		time       string // "" if the object is not marked
		generation string
	}{
		"object":         {first, "2026-01-02T03:04:59Z", "5"},
		"marked":         {`"deletionGracePeriodSeconds":0,` + deleted + first, "2026-01-02T03:04:05Z", "4"},
		"grace period":   {`"deletionGracePeriodSeconds":30,` + deleted + first, "2026-01-02T03:04:05Z", "4"},
		"in the future":  {strings.Replace(deleted, "04:05", "05:05", 1) + first, "", ""},
		"orphan":         {`"finalizers":["a/b","orphan"],`, "", ""},
		"foreground":     {`"finalizers":["foregroundDeletion"],`, "", ""},
		"odd generation": {first + `"generation":"4",`, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			text := gadgetWith(test.more)
			if strings.Contains(test.more, "generation") {
				text = strings.Replace(text, `"generation":4,`, "", 1)
			}
			marked, err := s.MarkDeleted([]byte(text+"\n"), testNow)
			if test.time == "" {
				if err == nil {
					t.Errorf("planned %s", marked)
				}
				return
			}
			expect.NoError(t, err)
			want, got := fieldsIn(strings.Replace(text, `"resourceVersion":"7",`, "", 1)), fieldsIn(strings.TrimSuffix(string(marked), "\n"))
			want["deletionGracePeriodSeconds"], want["deletionTimestamp"], want["generation"] = "0", `"`+test.time+`"`, test.generation
			expect.Equal(t, want, got)
		})
	}
}

// fieldsIn returns the fields of an object and of its metadata.
func fieldsIn(text string) map[string]string {
	fields := map[string]string{}
	all := membersOf(text)
	for _, m := range append(membersOf(all.get("metadata")), all...) {
		if m.key != "metadata" {
			fields[m.key] = m.value
		}
	}
	return fields
}

// TestUnsure has a row for what is not planned, by reason. more is in the metadata of the stored object.
func TestUnsure(t *testing.T) {
	t.Parallel()
	s := newSchema(t, gadgets(t, gadgetSchema))
	const (
		owner = `{"apiVersion":"v1","kind":"A","name":"a","uid":"a"}`
		dying = `"deletionGracePeriodSeconds":0,"deletionTimestamp":"2026-01-02T03:04:05Z",`
		kept  = dying + `"finalizers":["a/b","c/d"],`
	)
	for reason, tests := range map[Unsure]map[string]struct {
		more  string
		write Write
	}{
		ErrBody: {
			"nothing":              {"", Write{}},
			"not JSON":             {"", write("}}", "}")},
			"array":                {"", patch(`[{"op":"remove","path":"/spec"}]`)},
			"null":                 {"", patch("null")},
			"key twice":            {"", write(`"size":1`, `"size":1,"size":2`)},
			"float":                {"", write(`"size":1`, `"size":1.0`)},
			"null in a new object": {"", patch(`{"spec":{"deep":{"a":null}}}`)},
		},
		errIdentity: {
			"apiVersion":      {"", Write{Body: []byte(strings.Replace(gadgetWith(""), "com/v1", "com/v2", 1))}},
			"kind":            {"", write("Gadget", "Widget")},
			"kind of a patch": {"", patch(`{"kind":null}`)},
			"no metadata":     {"", patch(`{"metadata":null}`)},
			"metadata, text":  {"", patch(`{"metadata":"a"}`)},
		},
		ErrVersion: {
			"version":            {"", write(`"resourceVersion":"7"`, `"resourceVersion":"6"`)},
			"version of a patch": {"", patch(`{"metadata":{"resourceVersion":"8"}}`)},
			"empty version":      {"", write(`"resourceVersion":"7"`, `"resourceVersion":""`)},
		},
		errMetadata: {
			"name":                     {"", write(`"name":"g"`, `"name":"h"`)},
			"no name":                  {"", write(`"name":"g",`, "")},
			"namespace":                {"", write(`"namespace":"ns"`, `"namespace":"other"`)},
			"UID":                      {"", write(`"uid":"u"`, `"uid":"v"`)},
			"creation":                 {"", write("03:04:05Z", "03:04:06Z")},
			"no version":               {"", write(`"resourceVersion":"7",`, "")},
			"unknown":                  {"", write(`"uid":"u"`, `"uid":"u","x":""`)},
			"generateName":             {"", write(`"uid":"u"`, `"uid":"u","generateName":"g"`)},
			"selfLink":                 {"", write(`"uid":"u"`, `"uid":"u","selfLink":"/g"`)},
			"deletion":                 {"", write(`"uid":"u"`, `"uid":"u",`+strings.TrimSuffix(dying, ","))},
			"finalizer, no domain":     {"", patch(`{"metadata":{"finalizers":["a"]}}`)},
			"finalizer, bad name":      {"", patch(`{"metadata":{"finalizers":["a/b c"]}}`)},
			"finalizer twice":          {"", patch(`{"metadata":{"finalizers":["a/b","a/b"]}}`)},
			"finalizer, number":        {"", patch(`{"metadata":{"finalizers":[1]}}`)},
			"owner without a name":     {"", patch(`{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"A","uid":"a"}]}}`)},
			"owner of a bad version":   {"", patch(`{"metadata":{"ownerReferences":[{"apiVersion":"a/b/c","kind":"A","name":"a","uid":"a"}]}}`)},
			"owner, unknown field":     {"", patch(`{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"A","name":"a","uid":"a","x":"y"}]}}`)},
			"owner twice":              {"", patch(`{"metadata":{"ownerReferences":[` + owner + "," + owner + `]}}`)},
			"owners of the status":     {"", patch(`{"metadata":{"ownerReferences":[` + owner + `]},"status":{}}`).ofStatus()},
			"managed fields, reset":    {"", patch(`{"metadata":{"managedFields":[]}}`)},
			"managed fields, changed":  {"", write(`"f:size"`, `"f:name"`)},
			"other labels of a status": {"", patch(`{"metadata":{"labels":{"a":"b"}},"status":{"phase":"old"}}`).ofStatus()},
			"labels like annotations":  {"", patch(`{"metadata":{"labels":{"a":"b c"},"annotations":{"a":"b c"}}}`)},
			"generateName missing":     {`"generateName":"g",`, write()},
			"UID, object":              {"", write(`"uid":"u"`, `"uid":{}`)},
			"creation, text":           {"", write(`"2026-01-02T03:04:05Z"`, `""`)},
			"finalizers, object":       {"", patch(`{"metadata":{"finalizers":{}}}`)},
			"annotations, text":        {"", write(`{"a":"1"}`, `"a"`)},
			"annotation, number":       {"", write(`{"a":"1"}`, `{"a":1}`)},
			"annotation, null":         {"", write(`{"a":"1"}`, `{"a":null}`)},
			"labels, array":            {"", write(`"uid":"u"`, `"uid":"u","labels":[]`)},
			"bad name of annotation":   {"", write(`{"a":"1"}`, `{"a b":"1"}`)},
			"bad label":                {"", patch(`{"metadata":{"labels":{"a":"b c"}}}`)},
			"bad name of a label":      {"", patch(`{"metadata":{"labels":{"/":"b"}}}`)},
			"labels of the status":     {"", patch(`{"metadata":{"labels":{"a":1}}}`).ofStatus()},
			"generation":               {"", write(`"generation":4`, `"generation":"4"`)},
		},
		errManagedFields: {
			"name not UTF-8":      {"", Write{Body: []byte("{}"), Patch: true, Manager: "a\xff"}},
			"other of the status": {"", patch(`{"other":"x"}`).ofStatus()},
			"null":                {"", write(`"size":1`, `"size":null`)},
		},
		errSchema: {
			"type":                    {"", write(`"size":1`, `"size":"1"`)},
			"rule":                    {"", write(`"size":1`, `"size":13`)},
			"status":                  {"", patch(`{"status":{"phase":1}}`).ofStatus()},
			"unknown in the status":   {"", write(`"new"`, `"new","x":1`)},
			"type in ignored status":  {"", write(`"new"`, "1")},
			"unknown in ignored spec": {"", patch(`{"spec":{"x":1}}`).ofStatus()},
			"items":                   {"", patch(`{"items":[]}`)},
		},
		errDeleting: {
			"spec":            {dying, patch(`{"spec":{"size":2}}`)},
			"status":          {dying, patch(`{"status":{"phase":"old"}}`).ofStatus()},
			"grace period":    {strings.Replace(kept, ":0", ":5", 1), patch(`{"metadata":{"finalizers":null}}`)},
			"no grace period": {strings.TrimPrefix(kept, `"deletionGracePeriodSeconds":0,`), patch(`{"metadata":{"finalizers":[]}}`)},
			"finalizer added": {kept, patch(`{"metadata":{"finalizers":["a/b","c/d","e/f"]}}`)},
		},
	} {
		for name, test := range tests {
			t.Run(string(reason)+"/"+name, func(t *testing.T) {
				t.Parallel()
				planned, err := s.Plan(t.Context(), []byte(gadgetWith(test.more)+"\n"), test.write, testNow)
				if !errors.Is(err, reason) {
					t.Errorf("planned %+v, error %v", planned, err)
				}
			})
		}
	}
}

// TestUnsureOfStored plans writes that are certain except for the stored object.
func TestUnsureOfStored(t *testing.T) {
	t.Parallel()
	s := newSchema(t, gadgets(t, gadgetSchema))
	for name, test := range map[string]struct{ old, replaced, patch string }{
		"items":             {`"spec":{`, `"items":[],"spec":{`, `{"spec":{"size":2}}`},
		"unknown field":     {`"size":1`, `"size":1,"x":1`, `{"spec":{"size":2}}`},
		"invalid status":    {`"new"`, `1`, `{"spec":{"size":2}}`},
		"rule of a change":  {`"size":1`, `"class":"a","size":1`, `{"spec":{"class":"b"}}`},
		"no longer allowed": {`"size":1`, `"size":13`, `{"spec":{"name":"x"}}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			current := strings.Replace(gadgetWith(""), test.old, test.replaced, 1)
			if planned, err := s.Plan(t.Context(), []byte(current+"\n"), patch(test.patch), testNow); !errors.Is(err, errSchema) {
				t.Errorf("planned %+v, error %v", planned, err)
			}
		})
	}
	current := strings.Replace(gadgetWith(""), `"spec":{`, `"items":["a"],"spec":{`, 1)
	_, err := s.Plan(t.Context(), []byte(current+"\n"), write(), testNow)
	expect.Equal(t, errSchema, err, "items removed")
}

// TestPrecondition checks what a request has of the stored object.
func TestPrecondition(t *testing.T) {
	t.Parallel()
	s := newSchema(t, gadgets(t, gadgetSchema))
	for name, test := range map[string]struct {
		write Write
		uid   types.UID
	}{
		"all":        {write(), "u"},
		"no UID":     {write(`,"uid":"u"`, ""), ""},
		"empty UID":  {write(`"uid":"u"`, `"uid":""`), ""},
		"of a patch": {patch("{}"), "u"},
	} {
		planned, err := s.Plan(t.Context(), []byte(gadgetWith("")+"\n"), test.write, testNow)
		expect.NoError(t, err, name)
		expect.Equal(t, test.uid, planned.UID, name)
		expect.Equal(t, "7", planned.ResourceVersion, name)
	}
}

// TestNewSchema has definitions of which no write is planned.
func TestNewSchema(t *testing.T) {
	t.Parallel()
	type definition = apiextensionsv1.CustomResourceDefinition
	root := func(d *definition) *apiextensionsv1.JSONSchemaProps { return d.Spec.Versions[0].Schema.OpenAPIV3Schema }
	name := map[string]apiextensionsv1.JSONSchemaProps{"name": {Type: "string", MaxLength: new(int64(5))}}
	for description, change := range map[string]func(*definition){
		"no schema":       func(d *definition) { d.Spec.Versions[0].Schema = nil },
		"another version": func(d *definition) { d.Spec.Versions[0].Name = "v2" },
		"no pruning":      func(d *definition) { d.Spec.PreserveUnknownFields = true },
		"a limit of names": func(d *definition) {
			root(d).Properties["metadata"] = apiextensionsv1.JSONSchemaProps{Type: "object", Properties: name}
		},
		"an unsure root": func(d *definition) {
			root(d).AllOf = []apiextensionsv1.JSONSchemaProps{{MinProperties: new(int64(4))}}
		},
		"a root without a type": func(d *definition) { root(d).Type, root(d).XPreserveUnknownFields = "", new(true) },
	} {
		d := gadgets(t, gadgetSchema)
		change(d)
		if schema, err := NewSchema(d, "v1"); schema != nil {
			t.Errorf("%s: writes are planned, error %v", description, err)
		}
	}
	d := gadgets(t, `{type: object, x-kubernetes-preserve-unknown-fields: true}`)
	if schema, err := NewSchema(d, "v1"); schema == nil {
		t.Errorf("a root without properties: no write is planned, error %v", err)
	}
	d = gadgets(t, gadgetSchema)
	d.Spec.Versions[0].Subresources = nil
	_, err := newSchema(t, d).Plan(t.Context(), []byte(gadgetWith("")+"\n"), patch("{}").ofStatus(), testNow)
	expect.Equal(t, errSchema, err, "status that is no subresource")
	if props := root(d); len(props.Properties) != 4 {
		t.Errorf("the schema of the definition was changed: %v", props.Properties)
	}
}
