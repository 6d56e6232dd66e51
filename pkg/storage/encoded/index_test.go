// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package encoded

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/storage"
	storagemetrics "k8s.io/apiserver/pkg/storage/metrics"
	"k8s.io/component-base/metrics/legacyregistry"

	"github.com/annex-dev/annex/pkg/test/expect"
)

const indexedGroup = "indexed.example.com"

// newIndexed returns widgets with a selectable content.
func newIndexed() *Resource {
	kind := schema.GroupVersionKind{Group: indexedGroup, Version: "v1", Kind: "Widget"}
	return &Resource{
		Kind: kind, ListKind: kind.GroupVersion().WithKind("WidgetList"), Selectable: []string{"spec.content"},
		Attrs: func(obj runtime.Object) (labels.Set, fields.Set, error) {
			labelSet, fieldSet, err := widgets.Attrs(obj)
			fieldSet["spec.content"], _, _ = unstructured.NestedString(obj.(*unstructured.Unstructured).Object, "spec", "content")
			return labelSet, fieldSet, err
		},
	}
}

// objectsRead returns how many objects lists have read through the index.
func objectsRead(t *testing.T) float64 {
	t.Helper()
	families, err := legacyregistry.DefaultGatherer.Gather()
	expect.NoError(t, err)
	sum := 0.0
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			of := map[string]string{}
			for _, label := range metric.GetLabel() {
				of[label.GetName()] = label.GetValue()
			}
			if family.GetName() == "apiserver_storage_list_fetched_objects_total" && of["group"] == indexedGroup && of["index"] == "f:spec.content" {
				sum += metric.GetCounter().GetValue()
			}
		}
	}
	return sum
}

// TestIndexes lists by a selectable field that is added, changed and missing.
func TestIndexes(t *testing.T) {
	t.Parallel()
	storagemetrics.Register()
	w := newCached(t, newIndexed())
	for i := range 20 {
		object := newWidgetText(i, fmt.Sprint(i%5))
		if i == 7 {
			unstructured.RemoveNestedField(object.Object, "spec", "content")
		}
		object.SetAPIVersion(indexedGroup + "/v1")
		w.create(t, object)
	}
	w.update(t, newWidgetText(3, "4"))
	w.delete(t, newWidgetText(9, ""))
	for name, test := range map[string]struct {
		selector string
		limit    int64
		read     float64
		want     []string
	}{
		"value":           {"spec.content=4", 0, 4, []string{"widget-0003", "widget-0004", "widget-0019", "widget-0014"}},
		"value and other": {"spec.content=4,metadata.namespace=ns-0", 0, 4, []string{"widget-0003"}},
		"missing":         {"spec.content=", 0, 1, []string{"widget-0007"}},
		"no object":       {"spec.content=9", 0, 0, nil},
		"limit":           {"spec.content=2", 10, 0, []string{"widget-0012", "widget-0002", "widget-0017"}},
		"other value":     {"spec.content!=0,spec.content!=1,spec.content!=2,spec.content!=3,spec.content!=4", 0, 0, []string{"widget-0007"}},
	} {
		before := objectsRead(t)
		selection := storage.SelectionPredicate{Label: labels.Everything(), Field: fields.ParseSelectorOrDie(test.selector), GetAttrs: Attrs, Limit: test.limit}
		var list List
		expect.NoError(t, w.cached.GetList(t.Context(), widgetsPrefix, storage.ListOptions{Predicate: selection, Recursive: true}, &list))
		var names []string // by namespace
		for i := range list.Items {
			names = append(names, list.Items[i].GetName())
		}
		if diff := cmp.Diff(test.want, names); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		if read := objectsRead(t) - before; read != test.read {
			t.Errorf("%s: %v objects were read through the index, want %v", name, read, test.read)
		}
	}
}
