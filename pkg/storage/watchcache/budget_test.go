// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package watchcache

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/test/expect"
)

const (
	plain      = hostingv1alpha1.CachePlain
	compressed = hostingv1alpha1.CacheCompressed
	none       = hostingv1alpha1.CacheNone
)

// fakeCache takes a tenth of its size when it is compressed.
type fakeCache struct {
	budget *Budget
	form   hostingv1alpha1.Cache
	size   int64
	// filling makes changes of the form fail, as in a cache that is not ready.
	filling bool
	usage   Usage
}

func (c *fakeCache) Usage() Usage { return c.usage }

func (c *fakeCache) Apply(_ context.Context, form hostingv1alpha1.Cache) error {
	if c.filling && form == compressed {
		return errors.New("the cache is filling")
	}
	c.form = form
	c.set()
	return nil
}

func (c *fakeCache) set() {
	now := Usage{Objects: 1, Bytes: map[hostingv1alpha1.Cache]int64{plain: c.size, compressed: c.size / 10}[c.form]}
	c.budget.Notify(now.Bytes - c.usage.Bytes)
	c.usage = now
}

// world is a Budget with caches of resources a to c.
type world struct {
	*Budget
	now       time.Time
	caches    map[string]*fakeCache
	specified map[string]hostingv1alpha1.Cache
}

func resourceNamed(name string) schema.GroupResource {
	return schema.GroupResource{Group: "example.com", Resource: name}
}

func newWorld(budget int64, sizes map[string]int64) *world {
	w := &world{now: time.Unix(0, 0), caches: map[string]*fakeCache{}, specified: map[string]hostingv1alpha1.Cache{}}
	w.Budget = NewBudget(budget)
	w.Budget.now = func() time.Time { return w.now }
	w.SetSpecified(func(name schema.GroupResource) hostingv1alpha1.Cache { return w.specified[name.Resource] })
	for name, size := range sizes {
		w.caches[name] = &fakeCache{budget: w.Budget, form: plain, size: size}
		w.caches[name].set()
		w.Add(resourceNamed(name), w.caches[name])
	}
	return w
}

// forms syncs, and returns the forms of all caches.
func (w *world) forms(t *testing.T) map[string]hostingv1alpha1.Cache {
	t.Helper()
	_ = w.sync(t.Context())
	forms := map[string]hostingv1alpha1.Cache{}
	for name, cache := range w.caches {
		forms[name] = cache.form
	}
	return forms
}

func (w *world) expect(t *testing.T, when string, want map[string]hostingv1alpha1.Cache) {
	t.Helper()
	if diff := cmp.Diff(want, w.forms(t)); diff != "" {
		t.Errorf("%s: %s", when, diff)
	}
}

func TestBudget(t *testing.T) {
	t.Parallel()
	type forms = map[string]hostingv1alpha1.Cache
	for name, test := range map[string]struct {
		budget    int64
		specified forms
		want      forms
	}{
		"unlimited":              {0, nil, forms{"a": plain, "b": plain, "c": plain}},
		"enough":                 {1600, nil, forms{"a": plain, "b": plain, "c": plain}},
		"the largest compressed": {1500, nil, forms{"a": compressed, "b": plain, "c": plain}},
		"two compressed":         {600, nil, forms{"a": compressed, "b": compressed, "c": plain}},
		"all compressed":         {160, nil, forms{"a": compressed, "b": compressed, "c": compressed}},
		"the largest dropped":    {150, nil, forms{"a": none, "b": compressed, "c": compressed}},
		"all dropped":            {1, nil, forms{"a": none, "b": none, "c": none}},
		"as specified":           {0, forms{"a": none, "b": compressed}, forms{"a": none, "b": compressed, "c": plain}},
		"less than specified":    {15, forms{"a": none, "b": compressed}, forms{"a": none, "b": none, "c": compressed}},
	} {
		w := newWorld(test.budget, map[string]int64{"a": 1000, "b": 500, "c": 100})
		w.specified = test.specified
		w.expect(t, name, test.want)
		w.expect(t, name+", again", test.want)
		for cache, form := range test.want {
			to, why, reduced := w.Reduced(resourceNamed(cache))
			if want := form != plain && form != test.specified[cache]; reduced != want || reduced && (to != form || why == "") {
				t.Errorf("%s: %s is reduced: %v to %q because of %q, want %v", name, cache, reduced, to, why, want)
			}
		}
	}
}

// TestFilling lets caches that fill exceed the budget by a quarter.
func TestFilling(t *testing.T) {
	t.Parallel()
	w := newWorld(1000, map[string]int64{"a": 1100})
	w.caches["a"].filling = true
	for range 3 {
		w.expect(t, "while it fills", map[string]hostingv1alpha1.Cache{"a": plain})
	}
	if got := w.Form(resourceNamed("a")); got != compressed {
		t.Errorf("its new objects are to be kept %s", got)
	}
	w.caches["a"].size = 1300
	w.caches["a"].set()
	w.expect(t, "it is too large", map[string]hostingv1alpha1.Cache{"a": none})
}

// TestRestore checks that caches grow again when there is room, and later each time.
func TestRestore(t *testing.T) {
	t.Parallel()
	w := newWorld(1000, map[string]int64{"b": 1500})
	only := func(form hostingv1alpha1.Cache) map[string]hostingv1alpha1.Cache {
		return map[string]hostingv1alpha1.Cache{"b": form}
	}
	b := w.caches["b"]
	for round, delay := range []time.Duration{minRestore, 2 * minRestore, 4 * minRestore} {
		w.expect(t, fmt.Sprintf("round %d: it exceeds the budget", round), only(compressed))
		b.size = 400
		b.set()
		w.now = w.now.Add(delay)
		w.expect(t, fmt.Sprintf("round %d: there is no room for what it took", round), only(compressed))
		w.resources[resourceNamed("b")].saved[compressed] = 400
		w.now = w.now.Add(-1)
		w.expect(t, fmt.Sprintf("round %d: it is not time", round), only(compressed))
		w.now = w.now.Add(1)
		w.expect(t, fmt.Sprintf("round %d: it is time", round), only(compressed))
		w.expect(t, fmt.Sprintf("round %d: there is room", round), only(plain))
		if _, _, reduced := w.Reduced(resourceNamed("b")); reduced {
			t.Errorf("round %d: it is still reduced", round)
		}
		b.size = 1500
		b.set()
	}
	b.size = 15_000
	b.set()
	w.expect(t, "it exceeds the budget compressed", only(none))
	b.size = 300
	w.resources[resourceNamed("b")].saved[none] = 30
	w.now = w.now.Add(maxRestore)
	w.expect(t, "it is time", only(none))
	w.expect(t, "there is room for it compressed", only(compressed))
}

// TestAdded checks that a resource stays reduced while its caches are created again, as after a
// change of its definition, and is forgotten later.
func TestAdded(t *testing.T) {
	t.Parallel()
	w := newWorld(1000, nil)
	add := func() func() {
		w.caches["a"] = &fakeCache{budget: w.Budget, form: w.Form(resourceNamed("a")), size: 2000}
		w.caches["a"].set()
		return w.Add(resourceNamed("a"), w.caches["a"])
	}
	var handled []string
	defer w.AddHandler(func(name schema.GroupResource) { handled = append(handled, name.Resource) })()
	remove := add()
	w.expect(t, "it is added", map[string]hostingv1alpha1.Cache{"a": compressed})
	if len(handled) == 0 {
		t.Error("the handler was not called")
	}
	if usage, known := w.Usage(resourceNamed("a")); !known || usage.Bytes != 200 {
		t.Errorf("the usage is %+v, %v", usage, known)
	}
	w.Notify(-w.caches["a"].usage.Bytes)
	remove()
	if got := w.Form(resourceNamed("a")); got != compressed {
		t.Errorf("a new cache is %s", got)
	}
	remove = add()
	w.Notify(-w.caches["a"].usage.Bytes)
	remove()
	w.now = w.now.Add(maxRestore)
	w.resources[resourceNamed("a")].saved[compressed] = 0
	w.sync(t.Context())
	if len(w.resources) > 0 {
		t.Errorf("resources without caches are kept: %v", w.resources)
	}
}

// TestRun checks that a budget that is exceeded is noticed.
func TestRun(t *testing.T) {
	t.Parallel()
	w := newWorld(1000, map[string]int64{"a": 900})
	ctx, cancel := context.WithCancel(t.Context())
	w.AddHandler(func(schema.GroupResource) {
		if w.resources[resourceNamed("a")].to == compressed {
			cancel()
		}
	})
	w.caches["a"].size = 2000
	w.caches["a"].set()
	w.Run(ctx) // until the handler cancels it
}

// TestSpecifiedLess checks that a resource is not reduced below what is specified later.
func TestSpecifiedLess(t *testing.T) {
	t.Parallel()
	w := newWorld(10, map[string]int64{"a": 1000})
	w.expect(t, "it exceeds the budget", map[string]hostingv1alpha1.Cache{"a": none})
	if _, _, reduced := w.Reduced(resourceNamed("a")); !reduced {
		t.Error("it is not reduced")
	}
	w.specified["a"] = none
	if _, _, reduced := w.Reduced(resourceNamed("a")); reduced {
		t.Error("it is reduced to what is specified")
	}
}

func TestQuantity(t *testing.T) {
	t.Parallel()
	for bytes, want := range map[int64]string{0: "0", 1024: "1Ki", 20_000: "19Ki", 20<<20 + 5000: "20Mi", 15 << 30: "15Gi"} {
		if got := quantity(bytes); got != want {
			t.Errorf("%d: got %s, want %s", bytes, got, want)
		}
	}
}

func TestDefaultBudget(t *testing.T) {
	t.Parallel()
	const unlimited = 1<<63 - 1
	for _, test := range []struct {
		goLimit int64
		cgroup  string
		want    int64
	}{{unlimited, "max\n", 0}, {unlimited, "2000\n", 1000}, {500, "2000\n", 250}, {5000, "2000\n", 1000}, {unlimited, "", 0}} {
		file := filepath.Join(t.TempDir(), "memory.max")
		if test.cgroup != "" {
			expect.NoError(t, os.WriteFile(file, []byte(test.cgroup), 0o600))
		}
		if got := defaultBudget(test.goLimit, file); got != test.want {
			t.Errorf("%s: got %d, want %d", fmt.Sprint(test), got, test.want)
		}
	}
}
