// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package staticobjects

import (
	"fmt"
	"strings"
	"testing"

	"github.com/annex-dev/annex/pkg/test/expect"
)

const widgetA = `
apiVersion: example.com/v1
kind: Widget
metadata: {namespace: default, name: a}
spec: {size: 1}
`

const namespace = `{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "n"}}`

const widgetB = `
apiVersion: example.com/v1
kind: Widget
metadata: {namespace: default, name: b}
`

// names returns the full names and origins of objects.
func names(objects []Object) string {
	var lines []string
	for _, object := range objects {
		lines = append(lines, object.Key.String()+" "+object.Origin)
	}
	return strings.Join(lines, ", ")
}

func TestDecode(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		data    string
		want    string
		wantErr string
	}{
		"documents":           {widgetA + "---" + widgetB, "Widget.example.com default/a f#1, Widget.example.com default/b f#2", ""},
		"other versions":      {strings.Replace(widgetA, "/v1", "/v2", 1), "Widget.example.com default/a f#1", ""},
		"cluster-scoped":      {"{apiVersion: v1, kind: Namespace, metadata: {name: 'n'}}", "Namespace n f#1", ""},
		"comments":            {"# nothing\n---\n# here\n", "", ""},
		"empty documents":     {"---\n---" + widgetA + "---\n", "Widget.example.com default/a f#2", ""},
		"JSON":                {`{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "n"}}`, "Namespace n f#1", ""},
		"JSON documents":      {`{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "n"}}{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "m"}}`, "Namespace n f#1, Namespace m f#2", ""},
		"list":                {`{"apiVersion": "v1", "kind": "List", "items": [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "n"}}]}`, "Namespace n f#1.items[0]", ""},
		"list of lists":       {strings.Repeat(`{"kind": "List", "items": [`, 3) + namespace + strings.Repeat(`]}`, 3), "Namespace n f#1.items[0].items[0].items[0]", ""},
		"too many lists":      {strings.Repeat(`{"kind": "List", "items": [`, 11) + namespace + strings.Repeat(`]}`, 11), "", "items[0]: more than 10 lists in one another"},
		"aliases":             {"apiVersion: v1\nkind: Namespace\nmetadata: {name: &name team, labels: {team: *name}}", "Namespace team f#1", ""},
		"large with aliases":  {"a: &a " + strings.Repeat("x", 1<<16) + "\nb: [" + strings.Repeat("*a,", 1<<10) + "]", "", "document 1: has 67"},
		"empty file":          {" \n", "", "is empty"},
		"half of JSON":        {`{"apiVersion": "v1", "kind": "Namespace", "meta`, "", "document 1: "},
		"half of YAML":        {widgetA + "---\napiVersion: v1\nkind: Namespace\nmetadata: {name", "", "document 2: "},
		"half of an object":   {widgetA + "---\napiVersion: v1\nkind: Namespace\n", "", "document 2: metadata: must be set"},
		"a key twice":         {widgetA + "spec: {size: 2}", "", `key "spec" already set`},
		"no object":           {"- a\n- b", "", "document 1: must be an object"},
		"text":                {"hello", "", "document 1: must be an object"},
		"no version":          {"{kind: Widget, metadata: {name: a}}", "", "apiVersion: must be set"},
		"bad version":         {"{apiVersion: a/b/c, kind: Widget, metadata: {name: a}}", "", "apiVersion: unexpected GroupVersion"},
		"no kind":             {"{apiVersion: v1, metadata: {name: a}}", "", "kind: must be set"},
		"no name":             {"{apiVersion: v1, kind: Namespace, metadata: {labels: {}}}", "", "metadata.name: must be set"},
		"a name of YAML":      {"{apiVersion: v1, kind: Namespace, metadata: {name: n}}", "", "metadata.name: must be a string: put it in quotes"},
		"generated name":      {"{apiVersion: v1, kind: Namespace, metadata: {generateName: a-}}", "", "metadata.generateName"},
		"finalizers":          {"{apiVersion: v1, kind: Namespace, metadata: {name: 'n', finalizers: [a.dev/b]}}", "", "metadata.finalizers"},
		"owner":               {"{apiVersion: v1, kind: Namespace, metadata: {name: 'n', ownerReferences: [{}]}}", "", "metadata.ownerReferences"},
		"labels of a type":    {"{apiVersion: v1, kind: Namespace, metadata: {name: 'n', labels: {a: 1}}}", "", "metadata.labels: must be a map of strings"},
		"StaticSource":        {"{apiVersion: hosting.annex.dev/v1alpha1, kind: StaticSource, metadata: {name: file}}", "", "annex itself creates StaticSources"},
		"bad item of a list":  {`{"apiVersion": "v1", "kind": "List", "items": [{"kind": "Namespace", "metadata": {"name": "n"}}]}`, "", "items[0]: apiVersion"},
		"carriage returns":    {strings.ReplaceAll(widgetA+"---"+widgetB, "\n", "\r\n"), "Widget.example.com default/a f#1, Widget.example.com default/b f#2", ""},
		"metadata of no type": {"{apiVersion: v1, kind: Namespace, metadata: n}", "", "metadata: must be set"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			objects, err := Decode("file", "f", []byte(test.data))
			expect.ErrorOrNone(t, err, test.wantErr)
			expect.Equal(t, test.want, names(objects), "objects")
		})
	}
}

// What the server and controllers set is ignored, so that output of kubectl can be used.
func TestDecodeIgnores(t *testing.T) {
	t.Parallel()
	const exported = `
apiVersion: example.com/v1
kind: Widget
metadata:
  namespace: default
  name: a
  uid: 1-2-3
  resourceVersion: "7"
  generation: 3
  creationTimestamp: "2026-01-01T00:00:00Z"
  managedFields: [{manager: kubectl}]
  labels: {annex.dev/config.source: file}
  annotations: {annex.dev/config.mirror: x, annex.dev/config.hash: h, annex.dev/config.orphaned: z}
spec: {size: 1}
status: {phase: Ready}
`
	plain, err := Decode("file", "f", []byte(widgetA))
	expect.NoError(t, err)
	same, err := Decode("file", "g", []byte(exported))
	expect.NoError(t, err)
	content := same[0].Content
	if labels := content.GetLabels(); len(labels) > 0 {
		t.Errorf("labels %v", labels)
	}
	if annotations := content.GetAnnotations(); len(annotations) > 0 {
		t.Errorf("annotations %v", annotations)
	}
	content.SetLabels(nil)
	content.SetAnnotations(nil)
	expect.Equal(t, plain[0].Content.Object, content.Object, "content")
	expect.Equal(t, plain[0].UID, same[0].UID, "UID")
}

func TestIdentity(t *testing.T) {
	t.Parallel()
	decode := func(source, data string) Object {
		objects, err := Decode(source, "f", []byte(data))
		expect.NoError(t, err)
		return objects[0]
	}
	first := decode("file", widgetA)
	changed := decode("file", strings.Replace(widgetA, "size: 1", "size: 2", 1))
	elsewhere := decode("http", widgetA)
	other := decode("file", widgetB)
	if first.UID != changed.UID || first.Hash == changed.Hash {
		t.Errorf("a change: UIDs %s and %s, hashes %s and %s", first.UID, changed.UID, first.Hash, changed.Hash)
	}
	if first.UID == elsewhere.UID || first.Hash != elsewhere.Hash {
		t.Errorf("another source: UIDs %s and %s, hashes %s and %s", first.UID, elsewhere.UID, first.Hash, elsewhere.Hash)
	}
	if first.UID == other.UID || first.Hash == other.Hash {
		t.Errorf("another object: UIDs %s and %s, hashes %s and %s", first.UID, other.UID, first.Hash, other.Hash)
	}
}

func fields(size int) string {
	var all strings.Builder
	for i := range size {
		fmt.Fprintf(&all, "field%d: 1\n", i)
	}
	return widgetA + all.String()
}

// Not parallel: it counts allocations.
func TestDecodeIsLinear(t *testing.T) {
	for name, data := range map[string]func(size int) string{
		"documents": func(size int) string { return strings.Repeat(widgetA+"---", size) },
		"list": func(size int) string {
			return `{"kind": "List", "items": [` + strings.Repeat(namespace+",", size) + namespace + "]}"
		},
		"fields": fields,
		"depth": func(size int) string {
			return widgetA + "more: " + strings.Repeat("[", size) + strings.Repeat("]", size)
		},
		"aliases": func(size int) string { return widgetA + "more: [&a 1, " + strings.Repeat("*a, ", size) + "]" },
	} {
		t.Run(name, func(t *testing.T) {
			expect.Linear(t, 100, func(size int) func() {
				text := []byte(data(size))
				return func() {
					_, err := Decode("file", "f", text)
					expect.NoError(t, err)
				}
			})
		})
	}
}
