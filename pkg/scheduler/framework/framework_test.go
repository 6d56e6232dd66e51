// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package framework

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
)

func newResource(name string) *Resource {
	return NewResource(&hostingv1alpha1.HostedResource{ObjectMeta: metav1.ObjectMeta{Name: name}})
}

func newStores(names ...string) []*Store {
	var stores []*Store
	for _, name := range names {
		stores = append(stores, NewStore(&hostingv1alpha1.Store{ObjectMeta: metav1.ObjectMeta{Name: name}}))
	}
	return stores
}

// testPlugins refuses Stores whose name begins with "no", and prefers long names.
func testPlugins() *Plugins {
	p := &Plugins{}
	p.AddFilter("No", func(_ *Resource, store *Store) string {
		if strings.HasPrefix(store.Name, "no") {
			return "is called " + store.Name
		}
		return ""
	})
	p.AddScore("Long", 3, func(_ *Resource, store *Store) int64 { return int64(10 * len(store.Name)) })
	p.AddScore("Half", 1, func(*Resource, *Store) int64 { return 50 })
	return p
}

func TestDecide(t *testing.T) {
	t.Parallel()
	stores := newStores("b", "nope", "a", "long", "c", "not-this-one")
	stores[0].Add(newResource("x.example.com"))
	decision := testPlugins().Decide(newResource("widgets.example.com"), stores)
	var order []string
	for _, result := range decision {
		order = append(order, result.Store)
	}
	if diff := cmp.Diff([]string{"long", "a", "c", "b", "nope", "not-this-one"}, order); diff != "" {
		t.Errorf("order (-want +got):\n%s", diff)
	}
	best, ok := decision.Best()
	if !ok || best.Store != "long" || best.Total != 3*40+50 {
		t.Errorf("best %+v, %t", best, ok)
	}
	want := "4/6 Stores fit: long: score 170; a: score 80; c: score 80; b: score 80; nope: is called nope; not-this-one: is called not-this-one"
	if got := decision.String(); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestDecideNoneFits(t *testing.T) {
	t.Parallel()
	for want, stores := range map[string][]*Store{
		"there are no Stores":                  nil,
		"0/1 Stores fit: nope: is called nope": newStores("nope"),
	} {
		decision := testPlugins().Decide(newResource("widgets.example.com"), stores)
		if best, ok := decision.Best(); ok {
			t.Errorf("%s: chose %s", want, best.Store)
		}
		if got := decision.String(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestScoresAreClamped(t *testing.T) {
	t.Parallel()
	p := &Plugins{}
	p.AddScore("Boundless", 1, func(_ *Resource, store *Store) int64 {
		if store.Name == "low" {
			return -1000
		}
		return 1000
	})
	decision := p.Decide(newResource("widgets.example.com"), newStores("low", "high"))
	if decision[0].Total != MaxScore || decision[1].Total != 0 {
		t.Errorf("totals %d and %d, want %d and 0", decision[0].Total, decision[1].Total, MaxScore)
	}
	if total := (&Plugins{}).Decide(newResource("widgets.example.com"), newStores("a"))[0].Total; total != 0 {
		t.Errorf("without scores the total is %d", total)
	}
}

func TestBriefNamesEveryStore(t *testing.T) {
	t.Parallel()
	var names []string
	for i := range 30 {
		names = append(names, fmt.Sprintf("no-%02d-%s", i, strings.Repeat("x", 10)))
	}
	p := testPlugins()
	p.AddFilter("Verbose", func(*Resource, *Store) string { return strings.Repeat("because ", 20) })
	decision := p.Decide(newResource("widgets.example.com"), newStores(append(names, "fine")...))
	got := decision.Brief(1024)
	if len(got) > 1024 {
		t.Errorf("%d bytes", len(got))
	}
	for _, name := range append(names, "fine", "Verbose: ", "No+Verbose: ", "0/31 Stores fit") {
		if !strings.Contains(got, name) {
			t.Errorf("%q is not in %q", name, got)
		}
	}
	if got := decision.Brief(100); len(got) > 100 || !strings.HasSuffix(got, " ...") {
		t.Errorf("in 100 bytes: %q", got)
	}
	if got := decision.Brief(100_000); got != decision.String() {
		t.Errorf("with a high limit: %q", got)
	}
}

func TestDuplicateNamesPanic(t *testing.T) {
	t.Parallel()
	for what, add := range map[string]func(*Plugins){
		"filters": func(p *Plugins) { p.AddFilter("No", nil) },
		"scores":  func(p *Plugins) { p.AddScore("Long", 1, nil) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("two %s of one name were accepted", what)
				}
			}()
			add(testPlugins())
		}()
	}
}

func TestAllocated(t *testing.T) {
	t.Parallel()
	store := newStores("a")[0]
	for i := range 4 {
		r := newResource(fmt.Sprintf("r%d.example.com", i%2))
		r.Requested, r.Actual = Amounts{Storage: 100, Objects: 10}, Amounts{Storage: int64(60 * i), Objects: int64(i)}
		store.Add(r)
	}
	if want := (Amounts{Storage: 120 + 180, Objects: 20}); store.Allocated() != want {
		t.Errorf("allocated %+v, want %+v", store.Allocated(), want)
	}
	store.Remove("r0.example.com")
	store.Remove("r0.example.com")
	store.Remove("r1.example.com")
	if (store.Allocated() != Amounts{}) {
		t.Errorf("allocated %+v of an empty Store", store.Allocated())
	}
}
