// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package watchcache

import (
	stdcmp "cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/storage"
	storagemetrics "k8s.io/apiserver/pkg/storage/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/component-base/metrics/testutil"

	"github.com/annex-dev/annex/pkg/test/expect"
	"github.com/annex-dev/annex/pkg/test/poll"
)

const indexedGroup = "indexed.example.com"

// newIndexed returns widgets with a selectable content.
func newIndexed() *Resource {
	kind := schema.GroupVersionKind{Group: indexedGroup, Version: "v1", Kind: "Widget"}
	return &Resource{
		Kind: kind, ListKind: kind.GroupVersion().WithKind("WidgetList"), selectable: []string{"spec.content"},
		Attrs: func(obj runtime.Object) (labels.Set, fields.Set, error) {
			labelSet, fieldSet, err := widgets.Attrs(obj)
			fieldSet["spec.content"], _, _ = unstructured.NestedString(obj.(*unstructured.Unstructured).Object, "spec", "content")
			return labelSet, fieldSet, err
		},
	}
}

// objectsRead returns how many objects lists of widgets have read through the index.
func objectsRead(t *testing.T, group, index string) float64 {
	t.Helper()
	read, err := testutil.GetCounterValuesFromGatherer(legacyregistry.DefaultGatherer, "apiserver_storage_list_fetched_objects_total",
		map[string]string{"group": group, "index": index}, "resource")
	if err != nil {
		return 0 // no list yet
	}
	return read["widgets"]
}

// TestFieldIndexes lists by a selectable field that is added, changed and missing.
func TestFieldIndexes(t *testing.T) {
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
		"limit":           {"spec.content=2", 10, 3, []string{"widget-0012", "widget-0002", "widget-0017"}},
		"other value":     {"spec.content!=0,spec.content!=1,spec.content!=2,spec.content!=3,spec.content!=4", 0, 0, []string{"widget-0007"}},
	} {
		before := objectsRead(t, indexedGroup, "f:spec.content")
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
		if read := objectsRead(t, indexedGroup, "f:spec.content") - before; read != test.read {
			t.Errorf("%s: %v objects were read through the index, want %v", name, read, test.read)
		}
	}
}

// listOf has the parts of a list that are compared.
type listOf struct {
	keys     []string
	version  string
	token    string
	leftOver int64
}

// listBoth lists with and without Lists, the latter at the resource version of the former, and
// returns an error if the answers differ.
func (w *cachedWidgets) listBoth(ctx context.Context, key string, options storage.ListOptions) (*List, error) {
	got, want := &List{}, &List{}
	if err := w.cached.GetList(ctx, key, options, got); err != nil {
		return nil, err
	}
	if options.Predicate.Continue == "" {
		options.ResourceVersion, options.ResourceVersionMatch = got.ResourceVersion, metav1.ResourceVersionMatchExact
	}
	if err := w.upstream.GetList(ctx, key, options, want); err != nil {
		return nil, err
	}
	if diff := cmp.Diff(summary(want), summary(got), cmp.AllowUnexported(listOf{})); diff != "" {
		return nil, fmt.Errorf("list %s with %+v (-without +with indexes):\n%s", key, options, diff)
	}
	return got, nil
}

func summary(list *List) listOf {
	found := listOf{version: list.ResourceVersion, token: list.Continue, leftOver: -1}
	if list.RemainingItemCount != nil {
		found.leftOver = *list.RemainingItemCount
	}
	for i := range list.Items {
		found.keys = append(found.keys, list.Items[i].GetNamespace()+"/"+list.Items[i].GetName()+"@"+list.Items[i].GetResourceVersion())
	}
	return found
}

// TestLists compares lists, page after page, with the lists of upstream's watch cache, while objects are
// written and read anew.
func TestLists(t *testing.T) {
	t.Parallel()
	w := newCached(t, newIndexed())
	random := rand.New(rand.NewPCG(rand.Uint64(), 0))
	write := func() {
		object := newWidgetText(random.IntN(3000), fmt.Sprint(random.IntN(40)))
		object.SetAPIVersion(indexedGroup + "/v1")
		object.SetLabels(map[string]string{"part": fmt.Sprint(random.IntN(30)), "half": fmt.Sprint(random.IntN(2))})
		switch random.IntN(5) {
		case 0:
			w.delete(t, object)
		case 1, 2:
			w.update(t, object)
		default:
			w.create(t, object)
		}
	}
	for range 4000 {
		write()
	}
	stop, writer := make(chan struct{}), sync.WaitGroup{}
	writer.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				write()
			}
		}
	})
	defer writer.Wait()
	defer close(stop)
	choose := rand.New(rand.NewPCG(rand.Uint64(), 1))
	oneOf := func(of ...string) string { return of[choose.IntN(len(of))] }
	for i := range 150 {
		label, err := labels.Parse(oneOf("", "", "part=3", "part=3,half=1", "part in (4)", "part!=3", "!part", "part=none"))
		expect.NoError(t, err)
		key, options := widgetsPrefix+oneOf("", "", "ns-1/", "ns-1", "ns-7/"), storage.ListOptions{Recursive: true, ResourceVersion: oneOf("", "", "0", "1")}
		options.Predicate = storage.SelectionPredicate{
			Label: label, Field: fields.ParseSelectorOrDie(oneOf("", "", "spec.content=7", "spec.content!=7", "metadata.namespace=ns-2")), GetAttrs: Attrs,
		}
		if options.ResourceVersion == "" {
			options.Predicate.Limit = int64(choose.IntN(4)) * 100
		} else {
			options.ResourceVersionMatch = metav1.ResourceVersionMatchNotOlderThan
		}
		for {
			list, err := w.listBoth(t.Context(), key, options)
			if apierrors.IsTooManyRequests(err) || apierrors.IsResourceExpired(err) {
				break // it is being read anew
			}
			expect.NoError(t, err)
			if options.Predicate.Continue = list.Continue; list.Continue == "" {
				break
			}
		}
		if i%50 == 49 {
			w.source.breakAll()
			w.list(t)
		}
	}
	if _, indexed := w.memory.contents.used["part"]; !indexed {
		t.Errorf("the indexed labels are %v, want part", w.memory.contents.used)
	}
}

// TestLabelIndexes checks which labels are indexed, and what is accounted for them.
func TestLabelIndexes(t *testing.T) {
	t.Parallel()
	storagemetrics.Register()
	w := newCachedWidgets(t)
	const count, parts = 400, 20
	for i := range count {
		object := newWidgetText(i, "x")
		all := map[string]string{"part": fmt.Sprint(i % parts), "half": fmt.Sprint(i % 2)}
		for n := range maxLabels {
			all[fmt.Sprint("other-", n)] = fmt.Sprint(i % 10)
		}
		object.SetLabels(all)
		w.create(t, object)
	}
	poll.UntilDone(t, "the cache has all objects", func() (bool, string) {
		has := w.memory.Usage().Objects
		return has == count, fmt.Sprintf("it has %d", has)
	})
	w.list(t)
	before := w.memory.Usage().Bytes
	read := func(selector string, want int) float64 {
		label, err := labels.Parse(selector)
		expect.NoError(t, err)
		list := &List{}
		read := objectsRead(t, widgets.Kind.Group, "l:part")
		options := storage.ListOptions{Recursive: true, Predicate: storage.SelectionPredicate{Label: label, Field: fields.Everything(), GetAttrs: Attrs}}
		expect.NoError(t, w.cached.GetList(t.Context(), widgetsPrefix, options, list))
		if len(list.Items) != want {
			t.Errorf("%s selects %d objects, want %d", selector, len(list.Items), want)
		}
		return objectsRead(t, widgets.Kind.Group, "l:part") - read
	}
	for range 3 {
		read("half=1", count/2)
		read("part", count)
	}
	if got := w.memory.Usage().Bytes; got != before {
		t.Errorf("lists of most objects need no index, but the usage rose from %d to %d", before, got)
	}
	for i, want := range []float64{0, 0, count / parts, count / parts} {
		if got := read("part=3", count/parts); got != want {
			t.Errorf("list %d read %v objects through the index, want %v", i, got, want)
		}
	}
	if got := w.memory.Usage().Bytes - before; got != count*indexSize {
		t.Errorf("the index takes %d bytes, want %d", got, count*indexSize)
	}
	for n := range maxLabels {
		read(fmt.Sprintf("other-%d=1", n), count/10)
		read(fmt.Sprintf("other-%d=1", n), count/10)
	}
	if got := w.memory.Usage().Bytes - before; got != maxLabels*count*indexSize {
		t.Errorf("the indexes take %d bytes, want %d", got, maxLabels*count*indexSize)
	}
	for range unusedLists {
		w.memory.contents.selectAt(0, &storage.SelectionPredicate{Label: labels.SelectorFromSet(labels.Set{"half": "1"})}, widgetsPrefix)
	}
	last := fmt.Sprint("other-", maxLabels-1)
	read(last+"=1", count/10)
	read(last+"=1", count/10)
	if _, has := w.memory.contents.used[last]; !has || len(w.memory.contents.used) != maxLabels {
		t.Errorf("the indexed labels are %v, want %s in place of one that is not used", w.memory.contents.used, last)
	}
	w.source.breakAll()
	poll.UntilNoError(t, "the indexes have all objects after another list", func() error {
		w.list(t)
		if got := w.memory.Usage().Bytes - before; got != maxLabels*count*indexSize {
			return fmt.Errorf("the indexes take %d bytes, want %d", got, maxLabels*count*indexSize)
		}
		return nil
	})
	w.delete(t, newWidgetText(3, ""))
	w.list(t)
	read("part=3", count/parts-1)
}

// TestOrdered compares an ordered with a sorted slice, and checks that views do not change.
func TestOrdered(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(rand.Uint64(), 0))
	for _, value := range []valueFunc{everything, byLabel("part")} {
		o := newOrdered(value)
		all := map[string]*record{}
		type kept struct {
			view
			want []string
		}
		var views []kept
		names := func(v view) (names []string) {
			for r := range v.records(position{}, position{block: len(v.blocks)}) {
				names = append(names, r.labels["part"]+" "+r.key)
			}
			return names
		}
		for i := range 30_000 {
			r := &record{key: fmt.Sprintf("/widgets/%d/%04d", random.IntN(3), random.IntN(3000))}
			if part := random.IntN(20); part > 0 {
				r.labels = labels.Set{"part": fmt.Sprint(part)}
			}
			if i > 20_000 && random.IntN(3) > 0 { // it shrinks
				if before := all[r.key]; before != nil {
					o.remove(before)
				}
				delete(all, r.key)
			} else {
				o.replace(all[r.key], r)
				all[r.key] = r
			}
			if i%3000 != 2999 {
				continue
			}
			var want []string
			for _, r := range all {
				if _, found := value(r); found {
					want = append(want, r.labels["part"]+" "+r.key)
				}
			}
			slices.SortFunc(want, func(a, b string) int {
				ar, br := all[a[strings.Index(a, " ")+1:]], all[b[strings.Index(b, " ")+1:]]
				av, _ := value(ar)
				bv, _ := value(br)
				return stdcmp.Or(strings.Compare(av, bv), strings.Compare(ar.key, br.key))
			})
			if o.count != len(want) {
				t.Fatalf("it has %d records, want %d", o.count, len(want))
			}
			views = append(views, kept{o.snapshot(), want})
			from, to := o.limits("", "/widgets/1/", "/widgets/1/1")
			if got := len(slices.Collect(o.records(from, to))); got != o.between(from, to) {
				t.Fatalf("%d records are between two positions, counted %d", got, o.between(from, to))
			}
		}
		for _, v := range views {
			if diff := cmp.Diff(v.want, names(v.view)); diff != "" {
				t.Fatalf("a view has changed (-want +got):\n%s", diff)
			}
		}
	}
}
