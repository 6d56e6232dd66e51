// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package watchcache

import (
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/client-go/util/jsonpath"

	"github.com/annex-dev/annex/pkg/test/expect"
)

// counting is a codec that changes nothing, and counts what it decodes.
type counting struct {
	runtime.Codec
	decoded int
}

func (c *counting) Decode(data []byte, defaults *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	c.decoded++
	return c.Codec.Decode(data, defaults, into)
}

// encoding passes what it encodes to a function.
type encoding struct {
	runtime.Codec
	encode func(runtime.Object) error
}

func (e encoding) Encode(obj runtime.Object, _ io.Writer) error { return e.encode(obj) }

// TestEmptyObject encodes an empty Object as upstream's converters recognise it: they call the conversion webhook,
// which may be unavailable, for an object with any other field.
func TestEmptyObject(t *testing.T) {
	t.Parallel()
	encoded := 0
	form := widgets.Form(encoding{unstructured.UnstructuredJSONScheme, func(obj runtime.Object) error {
		encoded++
		if object := obj.(*unstructured.Unstructured).Object; len(object) != 2 {
			t.Errorf("the object is %v, want nothing but its kind", object)
		}
		return nil
	}})
	expect.NoError(t, form.Codec.Encode(form.NewObject(), io.Discard))
	expect.Equal(t, 1, encoded, "encoded objects")
}

// newRecognising returns widgets with a schema, of which the color may be selectable.
func newRecognising(selectable bool) *Resource {
	definition := newDefinition(apiextensionsv1.JSONSchemaProps{Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{"color": {Type: "string"}}})
	if selectable {
		definition.Spec.Versions[0].SelectableFields = []apiextensionsv1.SelectableField{{JSONPath: ".color"}}
	}
	return NewResource(definition, widgets.Kind, widgets.ListKind, func(obj runtime.Object) (labels.Set, fields.Set, error) {
		labelSet, fieldSet, err := widgets.Attrs(obj)
		if selectable {
			fieldSet["color"], _, _ = unstructured.NestedString(obj.(*unstructured.Unstructured).Object, "color")
		}
		return labelSet, fieldSet, err
	})
}

// TestCodecRecognises compares objects that need no decoding with those that are decoded.
func TestCodecRecognises(t *testing.T) {
	t.Parallel()
	const created = `"creationTimestamp":"2026-01-02T03:04:05Z","generation":1,`
	for name, test := range map[string]struct {
		metadata   string
		selectable bool
		decoded    int
	}{
		"labels":       {metadata: created + `"labels":{"a":"\u003cb\u003e"},"name":"a","namespace":"ns","uid":"u"`},
		"no labels":    {metadata: created + `"name":"a","namespace":"ns","uid":"u"`},
		"no UID":       {metadata: created + `"name":"a","namespace":"ns"`},
		"no namespace": {metadata: created + `"name":"a","uid":"u"`},
		"selectable":   {metadata: created + `"labels":{"a":"b"},"name":"a","namespace":"ns","uid":"u"`, selectable: true},
		"not as it is": {metadata: created + `"name":"a","namespace":"ns","unknown":"u"`, decoded: 1},
		"not created":  {metadata: `"name":"a"`, decoded: 1},
	} {
		stored := []byte(`{"apiVersion":"example.com/v1","color":"red","kind":"Widget","metadata":{` + test.metadata + "}}\n")
		recognising, inner := newRecognising(test.selectable), &counting{Codec: unstructured.UnstructuredJSONScheme}
		plain := newRecognising(test.selectable)
		plain.canonical = nil
		got, want := readObject(t, recognising.Form(inner).Codec, stored), readObject(t, plain.Form(unstructured.UnstructuredJSONScheme).Codec, stored)
		if got != want || inner.decoded != test.decoded {
			t.Errorf("%s: %d objects were decoded, want %d; the object is\n%s\nwant %s", name, inner.decoded, test.decoded, got, want)
		}

		inner.decoded = 0
		into, wantInto := recognising.newDecoded(), recognising.newDecoded()
		_, kind, err := recognising.DecodedCodec(inner).Decode(stored, nil, into)
		_, wantKind, wantErr := unstructured.UnstructuredJSONScheme.Decode(stored, nil, wantInto)
		if err := errors.Join(err, wantErr); err != nil || *kind != *wantKind || inner.decoded != test.decoded {
			t.Errorf("%s: %v, %v, %d objects were decoded, want %d", name, err, kind, inner.decoded, test.decoded)
		}
		if diff := cmp.Diff(wantInto.Object, into.Object); diff != "" {
			t.Errorf("%s: (-want +got)\n%s", name, diff)
		}
	}
}

// readObject returns all that is kept of an object, as storage reads it.
func readObject(t *testing.T, codec runtime.Codec, stored []byte) string {
	t.Helper()
	decoded, err := runtime.Decode(codec, stored)
	expect.NoError(t, err)
	object := decoded.(*Object)
	object.SetResourceVersion("12345")
	text, err := object.JSON()
	expect.NoError(t, err)
	labelSet, fieldSet, err := Attrs(object)
	expect.NoError(t, err)
	metadata := fmt.Sprint(object.GetUID(), object.GetCreationTimestamp(), object.GetLabels())
	return string(text) + object.GetNamespace() + "/" + object.GetName() + "@" + object.GetResourceVersion() + " " + labelSet.String() + " " + fieldSet.String() + " " + metadata
}

// TestFirstResourceVersion sets resource versions of all lengths, more than once, and of copies.
func TestFirstResourceVersion(t *testing.T) {
	t.Parallel()
	for name, metadata := range map[string]string{
		"in the middle": `"creationTimestamp":"2026-01-02T03:04:05Z","generation":1,"name":"a","uid":"u"`,
		"at the end":    `"creationTimestamp":"2026-01-02T03:04:05Z","generation":1,"name":"a"`,
	} {
		stored := `{"apiVersion":"example.com/v1","color":"red","kind":"Widget","metadata":{` + metadata + `},"spec":{"text":"after"}}` + "\n"
		versions := []string{"1", "12", "1234567890", "12345678901", strconv.FormatUint(math.MaxInt64, 10), "7"}
		read := func() *Object {
			decoded, err := runtime.Decode(newRecognising(false).Form(unstructured.UnstructuredJSONScheme).Codec, []byte(stored))
			expect.NoError(t, err)
			return decoded.(*Object)
		}
		check := func(object *Object, version string) {
			t.Helper()
			want := &unstructured.Unstructured{}
			expect.NoError(t, want.UnmarshalJSON([]byte(stored)))
			want.SetResourceVersion(version)
			wanted, err := want.MarshalJSON()
			expect.NoError(t, err)
			got, err := object.JSON()
			expect.NoError(t, err)
			if string(got) != string(wanted) || object.GetResourceVersion() != version || int(object.length) != len(got) || object.GetName() != "a" {
				t.Errorf("%s: version %s of %s with %d bytes is\n%s\nwant\n%s", name, object.GetResourceVersion(), object.GetName(), object.length, got, wanted)
			}
		}
		twice := read()
		for _, version := range versions {
			once := read()
			once.SetResourceVersion(version)
			stored := *once
			once.SetResourceVersion("98")
			check(&stored, version)
			twice.SetResourceVersion(version)
			check(twice, version)
		}
		original := read()
		copied := original.DeepCopyObject().(*Object)
		original.SetResourceVersion("23")
		check(copied, placeholder)
		copied.SetResourceVersion("456")
		check(original, "23")
		check(copied, "456")
	}
}

// TestDecodedCodecLeavesOthers checks what the codec must convert.
func TestDecodedCodecLeavesOthers(t *testing.T) {
	t.Parallel()
	const stored = `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"creationTimestamp":"2026-01-02T03:04:05Z","generation":1,"name":"a"}}` + "\n"
	another := &unstructured.Unstructured{}
	another.SetGroupVersionKind(schema.GroupVersionKind{Group: "example.com", Version: "v2", Kind: "Widget"})
	for name, into := range map[string]runtime.Object{"another version": another, "no version": &unstructured.Unstructured{}, "nothing": nil} {
		inner := &counting{Codec: unstructured.UnstructuredJSONScheme}
		if _, _, err := newRecognising(false).DecodedCodec(inner).Decode([]byte(stored), nil, into); err != nil || inner.decoded != 1 {
			t.Errorf("%s: %v, %d objects were decoded by the codec", name, err, inner.decoded)
		}
	}
}

// TestDecodeField compares what upstream finds by a selectable field in a whole object, and in what
// is decoded of it.
func TestDecodeField(t *testing.T) {
	t.Parallel()
	const stored = `{"metadata":{"generation":3,"name":"a"},"spec":{"a.b":{"c":"quoted"},"list":[1,2],"no":null,"size":7,"sub":{"deep":{"on":true},"text":"\u003cx\u003e"}},"text":"top"}`
	whole := map[string]any{}
	expect.NoError(t, json.Unmarshal([]byte(stored), &whole))
	paths := []string{
		".text", ".spec.size", ".spec.sub.text", ".spec.sub.deep.on", ".spec.sub.missing", ".missing.at.all", ".spec.no", ".spec.no.more", ".spec.size.more",
		".spec['a.b'].c", ".spec.sub['text']", ".metadata.generation", ".spec.list", ".spec.sub",
	}
	for _, path := range paths {
		for _, other := range paths {
			decoded := map[string]any{"metadata": map[string]any{"name": "a"}}
			for _, field := range []string{other, path} {
				expect.NoError(t, decodeField(decoded, stored, 0, strings.TrimPrefix(field, ".")), path)
			}
			for _, field := range []string{other, path} {
				finder := jsonpath.New(field).AllowMissingKeys(true)
				expect.NoError(t, finder.Parse("{"+field+"}"))
				if want, got := findAll(finder, whole), findAll(finder, decoded); got != want {
					t.Errorf("%s beside %s: found %s, want %s", field, other, got, want)
				}
			}
		}
	}
}

func findAll(finder *jsonpath.JSONPath, in map[string]any) string {
	results, err := finder.FindResults(in)
	found := fmt.Sprint(err)
	for _, result := range slices.Concat(results...) {
		found += fmt.Sprintf(" %#v", result.Interface())
	}
	return found
}
