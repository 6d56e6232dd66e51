// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package requestbody

import (
	"context"
	"fmt"
	"mime"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/runtime/serializer/cbor/direct"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/storage"

	"github.com/annex-dev/annex/pkg/storage/layer/objectsize"
	"github.com/annex-dev/annex/pkg/test/expect"
)

const (
	asJSON       = "application/json"
	asYAML       = string(types.ApplyYAMLPatchType)
	asProtobuf   = runtime.ContentTypeProtobuf
	jsonPatch    = string(types.JSONPatchType)
	strategic    = string(types.StrategicMergePatchType)
	maxItems     = objectsize.MaxItems
	tooManyItems = maxItems + 1
)

// lists returns the lists of a resource with a set in the field set.
func lists(*request.RequestInfo) (objectsize.AssociativeLists, error) {
	return objectsize.AssociativeLists{"set": {}, "finalizers": {}}, nil
}

// shapeOf returns the shape of a body that arrives in two parts.
func shapeOf(t *testing.T, contentType, text string) shape {
	t.Helper()
	half := len(text) / 2
	b := &body{content: [][]byte{[]byte(text[:half]), []byte(text[half:])}, values: objectsize.Values{IsJSON: !strings.Contains(contentType, "yaml")}}
	for _, part := range b.content {
		b.values.Add(part)
	}
	mediaType, _, _ := mime.ParseMediaType(contentType)
	of, err := b.shape(mediaType, func() (objectsize.AssociativeLists, error) { return lists(nil) }, codecs())
	expect.NoError(t, err)
	return of
}

// list is a list of different items.
func list(items int) string {
	var list strings.Builder
	for i := range items {
		fmt.Fprintf(&list, `,"a/%d"`, i)
	}
	return "[" + strings.TrimPrefix(list.String(), ",") + "]"
}

func inCBOR(t *testing.T, items int) string {
	t.Helper()
	encoded, err := direct.Marshal(map[string]any{"set": make([]string, items)})
	expect.NoError(t, err)
	return string(encoded)
}

func operations(count int, operation string) string {
	return "[" + strings.TrimSuffix(strings.Repeat(operation+",", count), ",") + "]"
}

func TestShape(t *testing.T) {
	t.Parallel()
	set := func(items int) string { return `{"spec":{"set":` + list(items) + `}}` }
	managers := func(count int) string { return operations(count, `{"manager":"a"}`) }
	add := func(path, value string) string { return `[{"op":"add","path":"` + path + `","value":` + value + `}]` }
	deepPath := strings.Repeat("/a", 1000)
	for name, test := range map[string]struct {
		mediaType, body string
		refusal         string
		managers        int
		items           int64
	}{
		"set":                            {mediaType: asJSON, body: set(maxItems)},
		"long set":                       {mediaType: asJSON, body: set(tooManyItems), refusal: "too many items"},
		"long set in a merge patch":      {mediaType: string(types.MergePatchType), body: set(tooManyItems), refusal: "too many items"},
		"long set in YAML":               {mediaType: asYAML, body: "spec:\n  set: " + list(tooManyItems), refusal: "too many items"},
		"long set in YAML, lines":        {mediaType: asYAML, body: "spec:\n  set:" + strings.Repeat("\n  - a", tooManyItems), refusal: "too many items"},
		"long set in CBOR":               {mediaType: runtime.ContentTypeCBOR, body: inCBOR(t, maxItems+1), refusal: "too many items"},
		"long list":                      {mediaType: asJSON, body: `{"spec":{"list":` + list(tooManyItems) + `}}`},
		"deep":                           {mediaType: asJSON, body: strings.Repeat(`{"a":`, 9000) + "1" + strings.Repeat("}", 9000), refusal: "nested too deep"},
		"deep in YAML":                   {mediaType: asYAML, body: strings.Repeat("{a: ", 9000) + "1" + strings.Repeat("}", 9000), refusal: "nested too deep"},
		"aliases":                        {mediaType: asYAML, body: "a: &a [1, 2]\nb: [*a, *a]"},
		"aliases of a long text":         {mediaType: asYAML, body: "a: &a " + strings.Repeat("x", 10_000) + "\nb: [" + strings.Repeat("*a,", 200) + "]", refusal: "the aliases in its YAML stand for 2010"},
		"strategic merge patch":          {mediaType: strategic, body: `{"a":[1]}`, items: maxMerged},
		"strategic merge patch, no list": {mediaType: strategic, body: `{"a":{}}`},
		"long strategic merge patch":     {mediaType: strategic, body: `{"a":` + list(maxMerged) + "}", items: maxMerged},
		"too long strategic merge patch": {mediaType: strategic, body: `{"a":` + list(maxMerged+1) + "}", refusal: "lists of 2000 items"},
		"JSON patch":                     {mediaType: jsonPatch, body: operations(maxOperations, `{"op":"add","path":"/spec/list/0","value":1}`)},
		"long JSON patch":                {mediaType: jsonPatch, body: operations(maxOperations+1, `{"op":"remove","path":"/spec/list/0"}`), items: maxItems - maxOperations - 1},
		"copy":                           {mediaType: jsonPatch, body: `[{"op":"copy","from":"/spec/list","path":"/spec/set"}]`, items: maxItems - 1},
		"many copies":                    {mediaType: jsonPatch, body: operations(17, `{"op":"copy","from":"/spec/a","path":"/spec/b"}`), refusal: "34 levels, the limit is 32"},
		"copy to an object":              {mediaType: jsonPatch, body: `[{"op":"copy","from":"/spec/a","path":"/metadata"}]`, refusal: `to "/metadata"`},
		"move to managers":               {mediaType: jsonPatch, body: `[{"op":"move","from":"/spec/a","path":"/metadata/managedFields"}]`, refusal: `to "/metadata/managedFields"`},
		"list in a JSON patch":           {mediaType: jsonPatch, body: add("/spec/list", list(maxItems-1))},
		"long list in a JSON patch":      {mediaType: jsonPatch, body: add("/spec/list", list(tooManyItems)), refusal: "lists of 20000 items"},
		"deep place in a JSON patch":     {mediaType: jsonPatch, body: add(deepPath, `"`+strings.Repeat("x", 100_000)+`"`), refusal: "nested too deep"},
		"managers in a JSON patch":       {mediaType: jsonPatch, body: add("/metadata/managedFields", managers(3)), managers: 3},
		"metadata in a JSON patch":       {mediaType: jsonPatch, body: add("/metadata", `{"managedFields":`+managers(3)+"}"), managers: 3},
		"object in a JSON patch":         {mediaType: jsonPatch, body: add("", `{"metadata":{"managedFields":`+managers(3)+"}}"), managers: 3},
		"managers one by one":            {mediaType: jsonPatch, body: operations(3, `{"op":"add","path":"/metadata/managedFields/-","value":{}}`), managers: 3},
		"no JSON patch":                  {mediaType: jsonPatch, body: `{"op":"copy"}`},
		"no YAML":                        {mediaType: asYAML, body: "a: [" + strings.Repeat("{", 600)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := shapeOf(t, test.mediaType, test.body)
			if (test.refusal == "") != (got.refusal == "") || !strings.Contains(got.refusal, test.refusal) {
				t.Errorf("refusal %q, want %q", got.refusal, test.refusal)
			}
			if got.managers != test.managers || test.refusal == "" && got.items != test.items {
				t.Errorf("%d managers and %d items of the object, want %d and %d", got.managers, got.items, test.managers, test.items)
			}
		})
	}
}

// TestShapeIsLinear is not parallel: it counts allocations.
func TestShapeIsLinear(t *testing.T) {
	for name, test := range map[string]struct {
		mediaType string
		body      func(size int) string
	}{
		"fields":    {asJSON, func(size int) string { return `{"a":[` + strings.Repeat(`{"b":1},`, size) + `1]}` }},
		"long list": {asJSON, func(size int) string { return `{"list":` + list(3*size) + `}` }},
		"managers": {asJSON, func(size int) string {
			return `{"metadata":{"managedFields":` + operations(size, `{"manager":"a"}`) + `}}`
		}},
		"JSON patch": {jsonPatch, func(size int) string {
			return operations(size, `{"op":"add","path":"/metadata/managedFields/-","value":{}}`)
		}},
		"YAML":      {asYAML, func(size int) string { return "a:" + strings.Repeat("\n- {b: c}", size) }},
		"deep YAML": {asYAML, func(size int) string { return strings.Repeat("{a: ", size/10) + "1" + strings.Repeat("}", size/10) }},
	} {
		t.Run(name, func(t *testing.T) {
			expect.Linear(t, 8000, func(size int) func() {
				body := test.body(size)
				return func() { shapeOf(t, test.mediaType, body) }
			})
		})
	}
}

// TestShapeOfProtobuf checks lists outside of metadata too.
func TestShapeOfProtobuf(t *testing.T) {
	t.Parallel()
	scheme := runtime.NewScheme()
	expect.NoError(t, corev1.AddToScheme(scheme))
	codecs := serializer.NewCodecFactory(scheme)
	account := func(secrets int) *corev1.ServiceAccount {
		account := &corev1.ServiceAccount{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ServiceAccount"}}
		account.Secrets = make([]corev1.ObjectReference, secrets)
		return account
	}
	nameless, unknown := account(tooManyItems), account(tooManyItems)
	nameless.TypeMeta, unknown.TypeMeta = metav1.TypeMeta{}, metav1.TypeMeta{APIVersion: "apiextensions.k8s.io/v1", Kind: "CustomResourceDefinition"}
	for name, test := range map[string]struct {
		object        *corev1.ServiceAccount
		refusal, want string
	}{
		"few":         {object: account(maxItems)},
		"too many":    {object: account(tooManyItems), refusal: "too many items"},
		"of no kind":  {object: nameless, want: "by the kind that it names"},
		"unknown":     {object: unknown},
		"small, none": {object: &corev1.ServiceAccount{}},
	} {
		raw, err := test.object.Marshal()
		expect.NoError(t, err)
		envelope := runtime.Unknown{TypeMeta: runtime.TypeMeta{APIVersion: test.object.APIVersion, Kind: test.object.Kind}, Raw: raw}
		encoded, err := envelope.Marshal()
		expect.NoError(t, err)
		got, err := shapeOfProtobuf(append([]byte("k8s\x00"), encoded...), codecs)
		expect.ErrorOrNone(t, err, test.want)
		if !strings.Contains(got.refusal, test.refusal) || (test.refusal == "") != (got.refusal == "") {
			t.Errorf("%s: refusal %q, want %q", name, got.refusal, test.refusal)
		}
	}
}

// existing is a storage with an object that has a long list.
type existing struct{ storage.Interface }

func (existing) GuaranteedUpdate(_ context.Context, _ string, _ runtime.Object, _ bool, _ *storage.Preconditions, tryUpdate storage.UpdateFunc, _ runtime.Object) error {
	_, _, err := tryUpdate(&unstructured.Unstructured{Object: map[string]any{"list": make([]any, tooManyItems)}}, storage.ResponseMeta{})
	return err
}

// TestListLimit patches objects with long lists.
func TestListLimit(t *testing.T) {
	t.Parallel()
	const long = `[{"op":"copy","from":"/a","path":"/spec/b"}]`
	for name, test := range map[string]struct {
		group, verb, body string
		want              string
	}{
		"long patch":                {"example.com", "patch", long, "the object has lists of more than "},
		"short patch":               {"example.com", "patch", "[]", ""},
		"short patch of a built-in": {"authorization.k8s.io", "patch", "[]", "the object has lists of more than "},
		"create":                    {"authorization.k8s.io", "create", "[]", ""},
		"long patch of no resource": {"", "patch", long, ""},
	} {
		limits := newLimits(mib)
		req := newRequest(t, test.group, strings.NewReader(test.body), len(test.body))
		req.Header.Set("Content-Type", jsonPatch)
		info, _ := request.RequestInfoFrom(req.Context())
		info.Verb, info.IsResourceRequest = test.verb, test.group != ""
		handled := false
		WithBody(WithBodyLimits(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
			handled = true
			update := func(object runtime.Object, _ storage.ResponseMeta) (runtime.Object, *uint64, error) {
				return object, nil, nil
			}
			err := objectsize.NewLimiter(objectsize.Config{}).Storage(existing{}).GuaranteedUpdate(req.Context(), "/a", nil, false, nil, update, nil)
			expect.ErrorOrNone(t, err, test.want)
		}), codecs()), limits).ServeHTTP(httptest.NewRecorder(), req)
		expect.Equal(t, true, handled, name)
	}
}
