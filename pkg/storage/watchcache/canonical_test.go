// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package watchcache

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensionsapiserver "k8s.io/apiextensions-apiserver/pkg/apiserver"
	"k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	"k8s.io/apiextensions-apiserver/pkg/client/informers/externalversions"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/storage/storagebackend/factory"
	restclient "k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"

	"github.com/annex-dev/annex/pkg/storage/canonicaljson"
	"github.com/annex-dev/annex/pkg/test/expect"
)

func newDefinition(root apiextensionsv1.JSONSchemaProps) *apiextensionsv1.CustomResourceDefinition {
	names := apiextensionsv1.CustomResourceDefinitionNames{Plural: "widgets", Singular: "widget", Kind: "Widget", ListKind: "WidgetList"}
	versions := []apiextensionsv1.CustomResourceDefinitionVersion{
		{Name: "v1", Served: true, Storage: true, Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &root}},
		{Name: "v2", Served: true, Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &root}},
	}
	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "widgets.example.com", UID: "1"},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: widgets.Kind.Group, Names: names, Scope: apiextensionsv1.NamespaceScoped, Versions: versions,
			Conversion: &apiextensionsv1.CustomResourceConversion{Strategy: apiextensionsv1.NoneConverter},
		},
		Status: apiextensionsv1.CustomResourceDefinitionStatus{AcceptedNames: names},
	}
}

// upstreamCodec returns the storage codec that upstream's handler makes for v1.
func upstreamCodec(t testing.TB, definition *apiextensionsv1.CustomResourceDefinition) runtime.Codec {
	t.Helper()
	client, err := clientset.NewForConfig(&restclient.Config{})
	expect.NoError(t, err)
	definitions := externalversions.NewSharedInformerFactory(client, 0).Apiextensions().V1().CustomResourceDefinitions()
	expect.NoError(t, definitions.Informer().GetIndexer().Add(definition))
	found := &codecs{}
	handler, err := apiextensionsapiserver.NewCustomResourceDefinitionHandler(
		nil, nil, definitions, http.NotFoundHandler(), found, nil, nil, nil, nil, 1, nil, 0, 0, nil, 0)
	expect.NoError(t, err)
	_, err = handler.GetCustomResourceListerCollectionDeleter(definition)
	expect.NoError(t, err)
	return found.codecs[0]
}

// codecs records the codecs of storage instead of creating it.
type codecs struct{ codecs []runtime.Codec }

func (c *codecs) GetRESTOptions(resource schema.GroupResource, _ runtime.Object) (generic.RESTOptions, error) {
	config := storagebackend.Config{Codec: unstructured.UnstructuredJSONScheme}
	return generic.RESTOptions{
		StorageConfig: config.ForResource(resource), ResourcePrefix: resource.String(),
		Decorator: func(config *storagebackend.ConfigForResource, _ string, _ func(runtime.Object) (string, error), _, _ func() runtime.Object,
			_ storage.AttrFunc, _ storage.IndexerFuncs, _ *cache.Indexers) (storage.Interface, factory.DestroyFunc, error) {
			c.codecs = append(c.codecs, config.Codec)
			return nil, func() {}, nil
		},
	}, nil
}

func encodeContent(t testing.TB, object map[string]any) []byte {
	t.Helper()
	text, err := (&unstructured.Unstructured{Object: object}).MarshalJSON()
	expect.NoError(t, err)
	return text
}

// decodeWidget decodes as storage does.
func decodeWidget(codec runtime.Codec, text []byte) (*unstructured.Unstructured, error) {
	into := &unstructured.Unstructured{}
	into.SetGroupVersionKind(widgets.Kind)
	_, _, err := codec.Decode(text, nil, into)
	return into, err
}

// checkMatch fails if an object is recognised that upstream's codec decodes to another one.
func checkMatch(t *testing.T, s *canonicalSchema, codec runtime.Codec, text []byte) bool {
	t.Helper()
	layout, matches := s.match(text)
	if !matches {
		return false
	}
	decoded, err := decodeWidget(codec, text)
	if err != nil {
		t.Fatalf("%s is recognised, upstream: %v", text, err)
	}
	var plain map[string]any
	expect.NoError(t, utiljson.Unmarshal(text, &plain))
	if again := encodeContent(t, decoded.Object); string(again) != string(text) || !reflect.DeepEqual(decoded.Object, plain) {
		t.Fatalf("recognised: %s\nupstream:   %s", text, again)
	}
	decoded.SetResourceVersion("7")
	want := string(encodeContent(t, decoded.Object))
	insert := `"resourceVersion":"7",`
	if text[layout.version] == '}' {
		insert = `,"resourceVersion":"7"`
	}
	if got := string(text[:layout.version]) + insert + string(text[layout.version:]); got != want {
		t.Fatalf("with a resource version: %s\nwant %s", got, want)
	}
	at := func(span canonicaljson.Span) string { return string(text[span.Start:span.End]) }
	labels := map[string]string{}
	if at(layout.labels) != "" {
		expect.NoError(t, json.Unmarshal(text[layout.labels.Start:layout.labels.End], &labels))
	}
	if at(layout.name) != decoded.GetName() || at(layout.namespace) != decoded.GetNamespace() || !maps.Equal(labels, decoded.GetLabels()) {
		t.Fatalf("the layout of %s is %+v", text, layout)
	}
	return true
}

// random generates schemas and objects, some valid.
type random struct{ *rand.Rand }

func (r random) one(of ...any) any { return of[r.IntN(len(of))] }

func (r random) maybe(percent int) bool { return r.IntN(100) < percent }

var names = []string{"a", "b", "metadata", "apiVersion", `<"&`, "ü\u2028"}

// schema returns a schema. Scalars may have defaults, and properties of any kind.
func (r random) schema(depth int) apiextensionsv1.JSONSchemaProps {
	s := apiextensionsv1.JSONSchemaProps{Nullable: r.maybe(20)}
	if depth == 0 || r.maybe(30) {
		s.Type = r.one("string", "integer", "boolean", "number").(string)
		return s
	}
	if r.maybe(30) {
		s.XPreserveUnknownFields = new(true)
	}
	if r.maybe(30) {
		items := r.schema(depth - 1)
		s.Type, s.Items = "array", &apiextensionsv1.JSONSchemaPropsOrArray{Schema: &items}
		return s
	}
	s.Type = "object"
	s.XEmbeddedResource = r.maybe(5)
	switch r.IntN(5) {
	case 0:
		additional := r.schema(depth - 1)
		s.AdditionalProperties = &apiextensionsv1.JSONSchemaPropsOrBool{Schema: &additional}
	case 1:
		s.AdditionalProperties = &apiextensionsv1.JSONSchemaPropsOrBool{Allows: true}
	default:
		s.Properties = r.properties(depth)
	}
	return s
}

func (r random) properties(depth int) map[string]apiextensionsv1.JSONSchemaProps {
	properties := map[string]apiextensionsv1.JSONSchemaProps{}
	for _, name := range names {
		if r.maybe(60) {
			child := r.schema(depth - 1)
			if r.maybe(15) {
				child.Default = &apiextensionsv1.JSON{Raw: []byte(r.one(`"x"`, `1`, `{"a":1,"b":null}`, `[]`, `null`).(string))}
			}
			properties[name] = child
		}
	}
	return properties
}

// value returns a value, mostly of a schema, which may be nil.
func (r random) value(s *apiextensionsv1.JSONSchemaProps, depth int) any {
	if s == nil || depth == 0 || r.maybe(3) {
		return r.one("", "text <&> \u2028 \x01 \\ \" ü", int64(0), int64(-3), 1.5, -1e-9, 1e21, 1e300, true, nil, "\u007f\b\f\n\r\t", map[string]any{}, []any{},
			[]any{nil, "x", int64(1 << 62)}, map[string]any{"a": nil, "b": map[string]any{"a": int64(1)}})
	}
	switch s.Type {
	case "object":
		object := map[string]any{}
		for name := range s.Properties {
			if child := s.Properties[name]; r.maybe(70) || child.Default != nil {
				object[name] = r.value(&child, depth-1)
			}
		}
		if s.AdditionalProperties != nil {
			for _, name := range names[:r.IntN(3)] {
				object[name] = r.value(s.AdditionalProperties.Schema, depth-1)
			}
		}
		if ptr.Deref(s.XPreserveUnknownFields, false) {
			object["unknown"] = r.value(nil, depth)
		}
		return object
	case "array":
		items := []any{}
		for range r.IntN(3) {
			items = append(items, r.value(s.Items.Schema, depth-1))
		}
		return items
	case "string":
		return r.one("", "text", "<&>")
	case "boolean":
		return r.one(true, false)
	}
	return r.one(int64(0), int64(42), 0.25)
}

func (r random) object(root *apiextensionsv1.JSONSchemaProps) map[string]any {
	object, ok := r.value(root, 5).(map[string]any)
	if !ok {
		object = map[string]any{}
	}
	object["apiVersion"], object["kind"] = "example.com/v1", "Widget"
	if r.maybe(3) {
		object["apiVersion"] = "example.com/v2"
	}
	object["metadata"] = r.metadata()
	return object
}

// metadata returns metadata as upstream writes it, or with a change.
func (r random) metadata() map[string]any {
	const stamp = "2026-01-02T03:04:05Z"
	m := map[string]any{
		"name": "a", "namespace": "ns", "creationTimestamp": stamp, "generation": int64(1), "uid": "u",
		"managedFields": []any{map[string]any{
			"manager": "m", "operation": "Update", "apiVersion": "example.com/v1", "time": stamp, "fieldsType": "FieldsV1",
			"fieldsV1": map[string]any{"f:spec": map[string]any{".": map[string]any{}, `k:{"a":"<"}`: map[string]any{}, `k:{"a":"="}`: map[string]any{}}},
		}},
	}
	for name, value := range map[string]any{
		"labels": map[string]any{"a": "<b>", "resourceVersion": "1"}, "annotations": map[string]any{"ü\"": "x"}, "finalizers": []any{"a/b"},
		"deletionTimestamp": stamp, "deletionGracePeriodSeconds": int64(0), "generateName": "a-",
		"ownerReferences": []any{map[string]any{"apiVersion": "v1", "kind": "K", "name": "n", "uid": "", "controller": true}},
	} {
		if r.maybe(30) {
			m[name] = value
		}
	}
	if r.maybe(20) {
		key := slices.Sorted(maps.Keys(m))[r.IntN(len(m))]
		switch r.IntN(3) {
		case 0:
			delete(m, key)
		case 1:
			m[key] = r.one("", nil, int64(0), 1.5, map[string]any{}, []any{}, []any{map[string]any{}}, "0001-01-01T00:00:00Z", "2026-01-02T03:04:05+01:00", map[string]any{"a": nil})
		case 2:
			m[r.one("selfLink", "resourceVersion", "unknown", "clusterName").(string)] = r.one("x", nil)
		}
	}
	return m
}

// TestMatchAgreesWithUpstream compares random objects of random schemas with what upstream's
// codec makes of them.
func TestMatchAgreesWithUpstream(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	t.Logf("the seed is %d", seed)
	r := random{rand.New(rand.NewPCG(seed, 0))}
	objects, stable, matched := 0, 0, 0
	var previous [][]byte // objects of another schema, as after a change of the definition
	for range 60 {
		root := apiextensionsv1.JSONSchemaProps{Type: "object", Properties: r.properties(4)}
		if r.maybe(20) {
			root.XPreserveUnknownFields = new(true)
		}
		delete(root.Properties, "apiVersion")
		if r.maybe(80) {
			delete(root.Properties, "metadata")
		}
		definition := newDefinition(root)
		codec, s := upstreamCodec(t, definition), newCanonicalSchema(definition, "v1")
		if s == nil {
			continue
		}
		for _, text := range previous {
			checkMatch(t, s, codec, text)
		}
		previous = nil
		for range 40 {
			text := encodeContent(t, r.object(&root))
			checkMatch(t, s, codec, text)
			checkMatch(t, s, codec, r.damage(text))
			decoded, err := decodeWidget(codec, text)
			if err != nil {
				continue
			}
			objects++
			once := encodeContent(t, decoded.Object)
			previous = append(previous, once)
			if decoded, err = decodeWidget(codec, once); err == nil && string(encodeContent(t, decoded.Object)) == string(once) {
				stable++
				if checkMatch(t, s, codec, once) {
					matched++
				}
			}
		}
	}
	t.Logf("%d objects, of which %d are as they were when they are decoded again, of which %d are recognised", objects, stable, matched)
	if matched < objects/4 {
		t.Errorf("only %d of %d objects are recognised", matched, objects)
	}
}

// damage changes a byte, or removes some.
func (r random) damage(text []byte) []byte {
	at := r.IntN(len(text))
	changed := slices.Clone(text)
	if r.maybe(50) {
		changed[at] = []byte(" 0\"\\{},:nu/A\xff-e")[r.IntN(15)]
		return changed
	}
	return slices.Delete(changed, at, min(len(text), at+1+r.IntN(6)))
}

// TestMatch has the cases that almost look right.
func TestMatch(t *testing.T) {
	t.Parallel()
	properties := map[string]apiextensionsv1.JSONSchemaProps{
		"spec": {Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{
			"text": {Type: "string", Nullable: true}, "number": {Type: "number"}, "list": {Type: "array", Items: &apiextensionsv1.JSONSchemaPropsOrArray{
				Schema: &apiextensionsv1.JSONSchemaProps{Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{"a": {Type: "string", Default: &apiextensionsv1.JSON{Raw: []byte(`"x"`)}}}},
			}},
			"free": {Type: "object", XPreserveUnknownFields: new(true)},
		}},
	}
	definition := newDefinition(apiextensionsv1.JSONSchemaProps{Type: "object", Properties: properties})
	s, codec := newCanonicalSchema(definition, "v1"), upstreamCodec(t, definition)
	const metadata = `{"creationTimestamp":"2026-01-02T03:04:05Z","generation":1,"name":"a","namespace":"b"}`
	object := func(spec string) string {
		return fmt.Sprintf(`{"apiVersion":"example.com/v1","kind":"Widget","metadata":%s,"spec":%s}`+"\n", metadata, spec)
	}
	plain := object(`{"text":"x"}`)
	for name, test := range map[string]struct {
		text    string
		matches bool
	}{
		"plain":                       {plain, true},
		"no spec":                     {strings.Replace(plain, `,"spec":{"text":"x"}`, "", 1), true},
		"all escapes":                 {object(`{"text":"\"\\\b\f\n\r\t\u003c\u003e\u0026\u2028\u2029\u0001` + "\u007f" + `"}`), true},
		"numbers":                     {object(`{"free":[0,-1,999999999999999999,1.5,1e+21,1e-7,-0.5]}`), true},
		"null in a free object":       {object(`{"free":{"a":null}}`), true},
		"all defaults":                {object(`{"list":[{"a":"x"},{"a":"y"}]}`), true},
		"no newline":                  {strings.TrimSpace(plain), false},
		"text after it":               {strings.TrimSpace(plain) + "}\n", false},
		"white space":                 {strings.Replace(plain, ":", ": ", 1), false},
		"keys not sorted":             {object(`{"text":"x","number":1}`), false},
		"a key twice":                 {object(`{"text":"x","text":"x"}`), false},
		"raw <":                       {object(`{"text":"<"}`), false},
		"upper-case escape":           {object(`{"text":"\u003C"}`), false},
		"escape of a plain character": {object(`{"text":"\u0041"}`), false},
		"escaped slash":               {object(`{"text":"\/"}`), false},
		"long escape of a newline":    {object(`{"text":"\u000a"}`), false},
		"invalid UTF-8":               {object("{\"text\":\"\xff\"}"), false},
		"float without need":          {object(`{"number":1.0}`), false},
		"negative zero":               {object(`{"number":-0}`), false},
		"leading zero":                {object(`{"number":01}`), false},
		"exponent":                    {object(`{"number":1e3}`), false},
		"large integer":               {object(`{"number":100000000000000000000}`), false},
		"unknown field":               {object(`{"other":1}`), false},
		"null":                        {object(`{"text":null}`), false},
		"missing default":             {object(`{"list":[{"a":"x"},{}]}`), false},
		"null for a default":          {object(`{"list":[{"a":null}]}`), false},
		"another version":             {strings.Replace(plain, "/v1", "/v2", 1), false},
		"another kind":                {strings.Replace(plain, "Widget", "Gadget", 1), false},
		"no kind":                     {strings.Replace(plain, `"kind":"Widget",`, "", 1), false},
		"no metadata":                 {strings.Replace(plain, `"metadata":`+metadata+`,`, "", 1), false},
		"no name":                     {strings.Replace(plain, `"name":"a",`, "", 1), false},
		"no generation":               {strings.Replace(plain, `"generation":1,`, "", 1), false},
		"generation 0":                {strings.Replace(plain, `"generation":1,`, `"generation":0,`, 1), false},
		"no creation":                 {strings.Replace(plain, `"creationTimestamp":"2026-01-02T03:04:05Z",`, "", 1), false},
		"another time zone":           {strings.Replace(plain, `05Z`, `05+01:00`, 1), false},
		"fractions of seconds":        {strings.Replace(plain, `05Z`, `05.1Z`, 1), false},
		"a date that is none":         {strings.Replace(plain, `2026-01-02`, `2026-02-30`, 1), false},
		"empty labels":                {strings.Replace(plain, `"name"`, `"labels":{},"name"`, 1), false},
		"label that is no string":     {strings.Replace(plain, `"name"`, `"labels":{"a":1},"name"`, 1), false},
		"resourceVersion":             {strings.Replace(plain, `"b"}`, `"b","resourceVersion":"1"}`, 1), false},
		"unknown metadata":            {strings.Replace(plain, `"name"`, `"more":{},"name"`, 1), false},
		"owner without UID":           {strings.Replace(plain, `"b"}`, `"b","ownerReferences":[{"apiVersion":"v1","kind":"K","name":"n"}]}`, 1), false},
		"deep":                        {object(`{"free":` + strings.Repeat("[", 200) + strings.Repeat("]", 200) + `}`), false},
		"cut":                         {plain[:len(plain)/2] + "\n", false},
	} {
		if matches := checkMatch(t, s, codec, []byte(test.text)); matches != test.matches {
			t.Errorf("%s: recognised: %v, want %v", name, matches, test.matches)
		}
	}
}

func TestCanonicalSchemaOfUnsupported(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*apiextensionsv1.CustomResourceDefinition){
		"preserveUnknownFields": func(d *apiextensionsv1.CustomResourceDefinition) { d.Spec.PreserveUnknownFields = true },
		"no schema":             func(d *apiextensionsv1.CustomResourceDefinition) { d.Spec.Versions[0].Schema = nil },
		"another version":       func(d *apiextensionsv1.CustomResourceDefinition) { d.Spec.Versions[0].Name = "v3" },
		"embedded root": func(d *apiextensionsv1.CustomResourceDefinition) {
			d.Spec.Versions[0].Schema.OpenAPIV3Schema.XEmbeddedResource = true
		},
	} {
		definition := newDefinition(apiextensionsv1.JSONSchemaProps{Type: "object"})
		change(definition)
		if newCanonicalSchema(definition, "v1") != nil {
			t.Errorf("%s: there is a schema", name)
		}
	}
}
