// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package differential

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/annex-dev/annex/pkg/test/expect"
	"github.com/annex-dev/annex/pkg/test/poll"
	"github.com/annex-dev/annex/pkg/test/random"
)

var (
	definitions = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	widgets     = schema.GroupVersionResource{Group: group, Version: "v1", Resource: "widgets"}
)

// TestRandom changes objects and their definition at random, through both servers, and compares
// random reads and watches in between, of a definition that is created again, and after a restart.
func TestRandom(t *testing.T) {
	run := random.Start(t, 1)
	p := startPair(t)
	versions := fill(t, p)
	r := &randomizer{pair: p, random: run.Rand(0), all: reads(versions), watches: watches(versions)}
	// The first waits for seconds. With the second annex has history from before a compaction.
	skipped := func(read request) bool {
		return strings.Contains(read.path, future) || strings.Contains(read.path, "resourceVersion=1&")
	}
	r.all, r.watches = slices.DeleteFunc(r.all, skipped), slices.DeleteFunc(r.watches, skipped)
	for run.Next() && !t.Failed() {
		r.round(t)
	}
	r.recreateDefinition(t)
	r.round(t)
	p.compact(t) // annex has history from before its start, which upstream lacks
	p.annex.stop()
	p.upstream.stop()
	p.startUpstream(t)
	p.startAnnex(t)
	r.round(t)
	t.Logf("%d changes, of which %d of the definition, %d reads, %d watches", r.changes, r.schemas, r.reads, r.watched)
}

type randomizer struct {
	*pair
	random       *rand.Rand
	all, watches []request
	// pagers are lists that earlier rounds began.
	pagers []request

	changes, schemas, reads, watched int
}

// round changes a few objects between reads, then compares watches.
func (r *randomizer) round(t *testing.T) {
	t.Helper()
	for range 10 {
		for range 1 + r.random.IntN(10) {
			r.change(t)
		}
		for range 20 {
			r.reads++
			r.read(t, r.all[r.random.IntN(len(r.all))])
		}
		r.page(t)
	}
	const many = 20
	r.watched += many
	var some []request
	for range many {
		some = append(some, r.watches[r.random.IntN(len(r.watches))])
	}
	r.compareAll(t, some, many)
}

// read compares a read with upstream's.
func (r *randomizer) read(t *testing.T, read request) {
	t.Helper()
	if strings.Contains(read.path, "resourceVersionMatch=Exact") {
		r.compareUnlessExpired(t, read)
		return
	}
	expect.NoError(t, r.compare(t.Context(), read))
}

// page begins a list, and continues one that began before other changes.
func (r *randomizer) page(t *testing.T) {
	t.Helper()
	path := []string{"/v1/widgets", "/v2/widgets", "/v1/namespaces/other/widgets", "/v1/planets"}[r.random.IntN(4)]
	first := request{path: "/apis/" + group + path + "?limit=3", accept: "application/json", userAgent: "test"}
	server := []*server{r.annex, r.upstream}[r.random.IntN(2)]
	token, err := server.continueToken(t.Context(), first)
	expect.NoError(t, err)
	if token != "" {
		first.path += "&continue=" + token
		r.pagers = append(r.pagers, first)
	}
	if len(r.pagers) == 0 {
		return
	}
	r.reads++
	i := r.random.IntN(len(r.pagers))
	r.compareUnlessExpired(t, r.pagers[i])
	if len(r.pagers) > 20 {
		r.pagers = slices.Delete(r.pagers, i, i+1)
	}
}

// compareUnlessExpired is compare, except that one server may remember more versions of the list: each
// finds out by itself, and later, that etcd was compacted.
func (r *randomizer) compareUnlessExpired(t *testing.T, read request) {
	t.Helper()
	poll.UntilNoError(t, "the answer for an earlier version is the same", func() error { return r.differenceUnlessExpired(t.Context(), read) })
}

func (r *randomizer) differenceUnlessExpired(ctx context.Context, page request) error {
	codes := map[int]bool{}
	for _, s := range []*server{r.annex, r.upstream} {
		response, _, err := s.get(ctx, page)
		if err != nil {
			return err
		}
		codes[response.StatusCode] = true
	}
	if len(codes) == 2 && codes[http.StatusOK] && codes[http.StatusGone] {
		return nil
	}
	return r.difference(ctx, page)
}

// change changes an object or the definition through one of the servers. Changes that are
// refused are changes that do nothing.
func (r *randomizer) change(t *testing.T) {
	t.Helper()
	r.changes++
	server := []*server{r.annex, r.upstream}[r.random.IntN(2)]
	namespace := []string{"default", "other"}[r.random.IntN(2)]
	i := r.random.IntN(60)
	name := fmt.Sprintf("object-%03d", i)
	objects := server.dynamic.Resource(widgets).Namespace(namespace)
	patch := func(body string, subresources ...string) {
		_, _ = objects.Patch(t.Context(), name, types.MergePatchType, []byte(body), metav1.PatchOptions{}, subresources...)
	}
	if r.random.IntN(30) == 0 {
		cache := []string{"Plain", "Compressed"}[r.random.IntN(2)]
		_, err := r.annex.dynamic.Resource(hostedResources).Patch(t.Context(), "widgets."+group, types.MergePatchType,
			fmt.Appendf(nil, `{"spec":{"cache":%q}}`, cache), metav1.PatchOptions{})
		expect.NoError(t, err)
	}
	switch r.random.IntN(21) {
	case 0, 1, 2, 3, 4, 5:
		object := newObject("Widget", namespace, i)
		expectSet(object, fmt.Sprint(r.random.Uint64()), "spec", "text")
		if r.random.IntN(20) == 0 {
			expectSet(object, strings.Repeat("large ", 200<<10), "spec", "text")
		}
		_, _ = objects.Create(t.Context(), object, metav1.CreateOptions{})
	case 6, 7, 8:
		_ = objects.Delete(t.Context(), name, metav1.DeleteOptions{})
	case 9, 10, 11:
		patch(fmt.Sprintf(`{"spec":{"text":"%d","color":null},"metadata":{"labels":{"part":"%d"}}}`, r.random.Uint64(), r.random.IntN(4)))
	case 12, 13:
		patch(fmt.Sprintf(`{"status":{"count":%d}}`, r.random.IntN(5)), "status")
	case 14:
		patch(`{"metadata":{"finalizers":null}}`)
	case 15:
		_, _ = objects.Apply(t.Context(), name, newObject("Widget", namespace, i), metav1.ApplyOptions{FieldManager: "random", Force: true})
	case 16:
		_ = objects.DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "part=3"})
	case 17, 18:
		patch(`{"spec":{"free":{"nested":{"metadata":{"resourceVersion":"1"}}}}}`)
	case 19:
		r.changeDefinition(t, server)
	case 20:
		r.compact(t)
	}
}

// recreateDefinition deletes the definition with its objects, and creates it again.
func (r *randomizer) recreateDefinition(t *testing.T) {
	t.Helper()
	objects := r.annex.dynamic.Resource(widgets)
	list, err := objects.List(t.Context(), metav1.ListOptions{})
	expect.NoError(t, err)
	for _, object := range list.Items {
		_, err := objects.Namespace(object.GetNamespace()).Patch(t.Context(), object.GetName(), types.MergePatchType,
			[]byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
		if !apierrors.IsNotFound(err) {
			expect.NoError(t, err)
		}
	}
	r.compact(t) // annex's next watch cache has history, which upstream's lacks
	crd := definition("widgets", "Widget", apiextensionsv1.NamespaceScoped)
	expect.NoError(t, r.annex.dynamic.Resource(definitions).Delete(t.Context(), crd.Name, metav1.DeleteOptions{}))
	poll.UntilNoError(t, "the definition is created again", func() error {
		return post(t.Context(), r.annex, definitionsPath, crd)
	})
	expect.NoError(t, r.compare(t.Context(), r.all[0]))
}

// changeDefinition changes what objects look like when they are read: defaults, pruning, columns.
func (r *randomizer) changeDefinition(t *testing.T, server *server) {
	t.Helper()
	r.schemas++
	changed := definition("widgets", "Widget", apiextensionsv1.NamespaceScoped)
	v1 := &changed.Spec.Versions[0]
	spec := v1.Schema.OpenAPIV3Schema.Properties["spec"]
	color := spec.Properties["color"]
	color.Default = &apiextensionsv1.JSON{Raw: fmt.Appendf(nil, `"default %d"`, r.random.IntN(3))}
	spec.Properties["color"] = color
	if r.random.IntN(2) == 0 {
		delete(spec.Properties, "free") // prunes it
	}
	if r.random.IntN(2) == 0 {
		spec.Properties["text"] = apiextensionsv1.JSONSchemaProps{Type: "integer"} // what is stored is not valid
	}
	v1.Schema.OpenAPIV3Schema.Properties["spec"] = spec
	if r.random.IntN(3) == 0 {
		changed.Spec.Conversion = r.conversion
	}
	v2 := &changed.Spec.Versions[2]
	v2.Storage = r.random.IntN(3) == 0
	v1.Storage = !v2.Storage
	if r.random.IntN(2) == 0 {
		v1.AdditionalPrinterColumns = []apiextensionsv1.CustomResourceColumnDefinition{{Name: "Color", Type: "string", JSONPath: ".spec.color"}}
	}
	r.compact(t) // annex's next watch cache has history, which upstream's lacks
	current, err := server.dynamic.Resource(definitions).Get(t.Context(), changed.Name, metav1.GetOptions{})
	expect.NoError(t, err)
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&changed.Spec)
	expect.NoError(t, err)
	current.Object["spec"] = content
	_, err = server.dynamic.Resource(definitions).Update(t.Context(), current, metav1.UpdateOptions{})
	if !apierrors.IsConflict(err) {
		expect.NoError(t, err)
	}
}
