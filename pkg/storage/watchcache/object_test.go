// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package watchcache

import (
	"bytes"
	"encoding/json"
	"maps"
	"math/rand/v2"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/annex-dev/annex/pkg/test/expect"
)

var widgets = &Resource{
	Kind:     schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Widget"},
	ListKind: schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "WidgetList"},
	Attrs: func(obj runtime.Object) (labels.Set, fields.Set, error) {
		decoded := obj.(*unstructured.Unstructured)
		return decoded.GetLabels(), fields.Set{"metadata.name": decoded.GetName(), "metadata.namespace": decoded.GetNamespace()}, nil
	},
}

// newWidget returns an Object with a resource version.
func newWidget(t testing.TB, text, version string) *Object {
	t.Helper()
	decoded := widgets.newDecoded()
	expect.NoError(t, json.Unmarshal([]byte(text), &decoded.Object))
	decoded.SetResourceVersion(version)
	made, err := widgets.encode(decoded, 0)
	expect.NoError(t, err)
	return &Object{made}
}

const tricky = `{"apiVersion":"example.com/v1","kind":"Widget","items":[{"metadata":{"resourceVersion":"1"}}],"aa":"\"metadata\":{",
	"metadata":{"annotations":{"resourceVersion":"2","metadata":"{\"resourceVersion\":\"3\"}","<":"\u2028"},"labels":{"resourceVersion":"4"},"name":"a","namespace":"ns"},
	"spec":{"metadata":{"resourceVersion":"5"}}}`

func TestResourceVersion(t *testing.T) {
	t.Parallel()
	object := newWidget(t, tricky, "7")
	copied := object.DeepCopyObject().(*Object)
	for _, version := range []string{"8", "123456", "9"} {
		copied.SetResourceVersion(version)
		want, err := object.Decode()
		expect.NoError(t, err)
		want.SetResourceVersion(version)
		wantJSON, _ := want.MarshalJSON()
		if got, err := copied.JSON(); err != nil || string(got) != string(wantJSON) {
			t.Errorf("version %s: %s, %v; want %s", version, got, err, wantJSON)
		}
		if copied.GetResourceVersion() != version || copied.GetName() != "a" || copied.GetNamespace() != "ns" || copied.GetLabels()["resourceVersion"] != "4" ||
			copied.GetAnnotations()["resourceVersion"] != "2" {
			t.Errorf("version %s: the metadata changed: %+v", version, copied.DecodeMetadata())
		}
	}
	if object.GetResourceVersion() != "7" {
		t.Errorf("the copy changed the original, which has version %s", object.GetResourceVersion())
	}
}

func TestSetters(t *testing.T) {
	t.Parallel()
	object := newWidget(t, tricky, "7")
	changed := object.DeepCopyObject().(*Object)
	changed.SetManagedFields(nil)
	changed.SetAnnotations(map[string]string{metav1.InitialEventsAnnotationKey: "true"})
	if got, err := changed.JSON(); err != nil || !strings.Contains(string(got), `"annotations":{"k8s.io/initial-events-end":"true"}`) || !strings.Contains(string(got), `"resourceVersion":"7"`) {
		t.Errorf("the object has no such annotation: %s, %v", got, err)
	}
	if object.GetAnnotations()["resourceVersion"] != "2" {
		t.Error("the copy changed the original")
	}
	empty := widgets.NewObject().(*Object)
	empty.SetResourceVersion("9")
	if got, err := empty.JSON(); err != nil || string(got) != `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"resourceVersion":"9"}}`+"\n" {
		t.Errorf("a bookmark is %s, %v", got, err)
	}
	var none Object
	if _, err := none.JSON(); err == nil || none.GetName() != "" {
		t.Error("an Object without content was encoded")
	}
}

// TestDecodeMeta compares with encoding/json.
func TestDecodeMeta(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		text, err := json.Marshal(randomMeta(random))
		expect.NoError(t, err)
		checkMeta(t, string(text))
	}
	for _, text := range []string{
		`{}`, `{"creationTimestamp":null}`, `{"unknown":{"a":[1,2]},"name":"a"}`, `{"labels":{}}`, `{"finalizers":[]}`, `{"generation":1e3}`,
		`{"managedFields":[{"time":null}]}`, `{"selfLink":"x"}`, `{"labels":null}`,
	} {
		checkMeta(t, text)
	}
}

func checkMeta(t *testing.T, text string) {
	t.Helper()
	var want metav1.ObjectMeta
	wantErr := json.Unmarshal([]byte(text), &want)
	got, err := decodeMeta(text, nil)
	if (err == nil) != (wantErr == nil) || err == nil && !equality.Semantic.DeepEqual(*got, want) {
		t.Errorf("decodeMeta(%s): %v\n%s", text, err, cmp.Diff(want, *got))
	}
}

func randomMeta(random *rand.Rand) metav1.ObjectMeta {
	words := []string{"", "a", "ü<>&", "\"quoted\"", "back\\slash", "line\nbreak", "\u2028", strings.Repeat("long", 50)}
	word := func() string { return words[random.IntN(len(words))] }
	some := func() bool { return random.IntN(2) == 0 }
	m := metav1.ObjectMeta{Name: word(), GenerateName: word(), Namespace: word(), UID: types.UID(word()), ResourceVersion: word(), Generation: random.Int64N(3)}
	if some() {
		m.Labels, m.Annotations = map[string]string{word(): word(), "b": word()}, map[string]string{word(): word()}
	}
	if some() {
		m.CreationTimestamp = metav1.Unix(random.Int64N(1e9), 0)
		m.DeletionTimestamp, m.DeletionGracePeriodSeconds = new(metav1.Unix(random.Int64N(1e9), 0)), new(random.Int64N(100))
	}
	if some() {
		m.Finalizers = []string{word(), word()}
		m.OwnerReferences = []metav1.OwnerReference{{APIVersion: word(), Kind: word(), Name: word(), UID: types.UID(word()), Controller: new(some())}, {BlockOwnerDeletion: new(some())}}
	}
	for range random.IntN(3) {
		m.ManagedFields = append(m.ManagedFields, metav1.ManagedFieldsEntry{
			Manager: word(), Operation: metav1.ManagedFieldsOperationApply, APIVersion: word(), Time: new(metav1.Unix(random.Int64N(1e9), 0)),
			FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(`{"f:a":{},"k:{\"x\":\"}\"}":[1]}`), Subresource: word(),
		})
	}
	return m
}

func TestParts(t *testing.T) {
	t.Parallel()
	object := newWidget(t, `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"a"},"spec":{"a":{"b":[1,2.5]},"c":"d"},"status":{"conditions":[{"type":"x"}]},"list":[1],"more":{"empty":{},"quoted":"a\"},{\\","last":{"t":true,"n":null,"i":-3,"f":0.5,"big":12345678901234567890}}}`, "7")
	for name, test := range map[string]struct {
		paths []string
		want  string
	}{
		"two levels":       {[]string{".spec.c", ".metadata.name"}, `{"metadata":{"name":"a"},"spec":{"c":"d"}}`},
		"below two levels": {[]string{".spec.a.b[1]", `.status.conditions[?(@.type=="x")].type`}, `{"spec":{"a":{"b":[1,2.5]}},"status":{"conditions":[{"type":"x"}]}}`},
		"a whole field":    {[]string{".spec.c", ".spec", ".spec.a"}, `{"spec":{"a":{"b":[1,2.5]},"c":"d"}}`},
		"missing":          {[]string{".none.of", ".spec.none"}, `{"spec":{}}`},
		"values":           {[]string{".more.quoted", ".more.empty", ".status.conditions"}, `{"more":{"empty":{},"quoted":"a\"},{\\"},"status":{"conditions":[{"type":"x"}]}}`},
		"an empty object":  {[]string{".more.empty.x", ".spec.c", ".more.last.t"}, `{"more":{"empty":{},"last":{"big":12345678901234567000,"f":0.5,"i":-3,"n":null,"t":true}},"spec":{"c":"d"}}`},
		"not an object":    {[]string{".list.x", ".list[0]"}, `{"list":[1]}`},
	} {
		content, err := NewParts(test.paths).Decode(object)
		expect.NoError(t, err)
		if got, _ := json.Marshal(content); string(got) != test.want {
			t.Errorf("%s: got %s, want %s", name, got, test.want)
		}
	}
	if content, err := NewParts([]string{"['spec'].c"}).Decode(object); err != nil || len(content) != 7 {
		t.Errorf("an unusual path: got %v, %v; want the whole object", content, err)
	}
}

func TestListJSON(t *testing.T) {
	t.Parallel()
	list := widgets.NewList().(*List)
	want := &unstructured.UnstructuredList{}
	want.SetGroupVersionKind(widgets.ListKind)
	for i := range 40 {
		if i == 0 || i == 39 {
			checkList(t, list, want)
		}
		object := newWidget(t, strings.Replace(tricky, `"aa":"`, `"aa":"`+strings.Repeat("x", i*100), 1), "7")
		list.Items = append(list.Items, *object)
		decoded, err := object.Decode()
		expect.NoError(t, err)
		want.Items = append(want.Items, *decoded)
	}
}

func checkList(t *testing.T, list *List, want *unstructured.UnstructuredList) {
	t.Helper()
	for _, remaining := range []*int64{nil, new(int64(5))} {
		list.RemainingItemCount, list.Continue, list.ResourceVersion = remaining, "<token>", "12"
		want.SetResourceVersion("12")
		want.SetContinue("<token>")
		want.SetRemainingItemCount(remaining)
		var got bytes.Buffer
		expect.NoError(t, list.WriteJSON(&got))
		encoded, err := want.MarshalJSON()
		expect.NoError(t, err)
		if diff := cmp.Diff(string(encoded), got.String()); diff != "" {
			t.Errorf("%d items: %s", len(list.Items), diff)
		}
	}
}

func BenchmarkDecodeMeta(b *testing.B) {
	text, err := json.Marshal(randomMeta(rand.New(rand.NewPCG(4, 4))))
	expect.NoError(b, err)
	b.Run("encoded", func(b *testing.B) {
		for b.Loop() {
			_, _ = decodeMeta(string(text), nil)
		}
	})
	b.Run("encoding-json", func(b *testing.B) {
		for b.Loop() {
			_ = json.Unmarshal(text, &metav1.ObjectMeta{})
		}
	})
}

func TestSharedSets(t *testing.T) {
	t.Parallel()
	var s sharedSets
	first, _ := s.get(labels.Set{"a": "1", "b": "2"})
	if second, isNew := s.get(labels.Set{"b": "2", "a": "1"}); isNew || reflect.ValueOf(first).Pointer() != reflect.ValueOf(second).Pointer() {
		t.Error("equal sets are not shared")
	}
	for _, other := range []labels.Set{{"a": "1,b=2", "b": ""}, {"a": "1", "b": "2,b="}, {"a": "1"}, {"a": "11:b1:2"}, {"a:1": "1"}} {
		if got, isNew := s.get(other); !isNew || !maps.Equal(got, other) {
			t.Errorf("got %v for %v", got, other)
		}
	}
	for i := range 3 * maxSharedSets {
		value := strconv.Itoa(i)
		if got, _ := s.get(labels.Set{"a": value}); got["a"] != value || len(s.sets) > maxSharedSets {
			t.Fatalf("set %d: %d sets are remembered", i, len(s.sets))
		}
	}
}

func TestSelectNames(t *testing.T) {
	t.Parallel()
	for selector, want := range map[string]struct {
		others string
		isKey  bool
		a, b   bool
	}{
		"metadata.name=a":                          {"", true, true, false},
		"metadata.name==a,spec.c=d":                {"spec.c=d", true, true, false},
		"metadata.name!=a":                         {"", false, false, true},
		"metadata.name=a,metadata.name!=a":         {"", false, false, false},
		"spec.c!=d,metadata.namespace=n":           {"metadata.namespace=n,spec.c!=d", false, true, true},
		"metadata.name!=a,metadata.namespace=n,x=": {"metadata.namespace=n,x=", false, false, true},
	} {
		names, others := split(fields.ParseSelectorOrDie(selector))
		if others.String() != want.others || isKey(names, false) != want.isKey || isKey(names, true) || match(names, "a") != want.a || match(names, "b") != want.b {
			t.Errorf("%s: others %q, isKey %v, a %v, b %v; want %+v", selector, others, isKey(names, false), match(names, "a"), match(names, "b"), want)
		}
	}
}
