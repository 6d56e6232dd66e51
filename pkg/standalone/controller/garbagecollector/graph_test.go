// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package garbagecollector

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/annex-dev/annex/pkg/standalone/controller/metadatainformers"
	"github.com/annex-dev/annex/pkg/test/expect"
)

var (
	things  = metadatainformers.Resource{GroupVersionResource: schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "things"}, Kind: "Thing", Namespaced: true}
	globals = metadatainformers.Resource{GroupVersionResource: schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "globals"}, Kind: "Global"}
)

// known fakes informers that have these objects.
type known map[types.NamespacedName]*metadatainformers.Object

func (known) ResourceFor(kind schema.GroupKind) (metadatainformers.Resource, bool) {
	if globals.HasKind(kind) {
		return globals, true
	}
	return things, things.HasKind(kind)
}

func (k known) Get(_ schema.GroupResource, namespace, name string) *metadatainformers.Object {
	return k[types.NamespacedName{Namespace: namespace, Name: name}]
}

// fixture is a graph with a readable queue, and the objects it received.
type fixture struct {
	*graph
	known      known
	now, later []types.UID
}

func newFixture() *fixture {
	f := &fixture{known: known{}}
	f.graph = newGraph(f.known, func(uid types.UID) { f.now = append(f.now, uid) }, func(uid types.UID) { f.later = append(f.later, uid) })
	return f
}

// queued returns what was queued since the last time.
func (f *fixture) queued() (now, later []types.UID) {
	slices.Sort(f.now)
	slices.Sort(f.later)
	now, later = slices.Compact(f.now), slices.Compact(f.later)
	f.now, f.later = nil, nil
	return now, later
}

func (f *fixture) wantQueued(t *testing.T, what string, now, later []types.UID) {
	t.Helper()
	gotNow, gotLater := f.queued()
	expect.Equal(t, now, gotNow, "%s: queued now", what)
	expect.Equal(t, later, gotLater, "%s: queued for later", what)
}

// put sends an object to the graph, as informers do.
func (f *fixture) put(object *metadatainformers.Object) {
	before := f.known[keyOf(object)]
	f.known[keyOf(object)] = object
	if before == nil {
		f.Added(things, object)
	} else {
		f.Updated(things, before, object)
	}
}

func (f *fixture) take(object *metadatainformers.Object) {
	delete(f.known, keyOf(object))
	f.Deleted(things, object)
}

func keyOf(object *metadatainformers.Object) types.NamespacedName {
	return types.NamespacedName{Namespace: object.Namespace, Name: object.Name}
}

// newThing is a Thing in a namespace, whose UID is its name.
func newThing(name string, owners ...metav1.OwnerReference) *metadatainformers.Object {
	return metadatainformers.NewObject(&metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		Namespace: "team", Name: name, UID: types.UID(name), OwnerReferences: owners,
	}})
}

func with(object *metadatainformers.Object, change func(*metadatainformers.Object)) *metadatainformers.Object {
	changed := *object
	change(&changed)
	return &changed
}

func inForeground(o *metadatainformers.Object) { o.Deleting, o.Foreground = true, true }

var yes = new(true)

func blocking(name string) metav1.OwnerReference {
	ref := free(name)
	ref.BlockOwnerDeletion = yes
	return ref
}

// renamed is a blocking reference with the UID of "owner", changed.
func renamed(change func(*metav1.OwnerReference)) metav1.OwnerReference {
	ref := blocking("owner")
	change(&ref)
	return ref
}

func free(name string) metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: "example.com/v1", Kind: "Thing", Name: name, UID: types.UID(name)}
}

func TestGraphHoldsOnlyWhatMatters(t *testing.T) {
	t.Parallel()
	f := newFixture()
	owner, child := newThing("owner"), newThing("child", free("owner"))
	f.put(newThing("loner"))
	f.put(owner)
	if len(f.nodes) != 0 {
		t.Errorf("%d nodes for objects without owners and dependents", len(f.nodes))
	}
	f.put(child)
	if of, known := f.item("owner"); !known || of.Object != owner {
		t.Errorf("the owner that was there before is %+v", of)
	}
	f.wantQueued(t, "an owner that is there", nil, nil)
	f.put(with(child, func(o *metadatainformers.Object) { o.Owners = nil }))
	f.wantQueued(t, "no owner any more", nil, nil)
	if len(f.nodes) != 0 || len(f.unseen) != 0 {
		t.Errorf("%d nodes, %d unseen, after all references went", len(f.nodes), len(f.unseen))
	}
}

func TestGraphQueues(t *testing.T) {
	t.Parallel()
	t.Run("an owner that is observed later", func(t *testing.T) {
		t.Parallel()
		f := newFixture()
		child := newThing("child", free("owner"))
		f.put(child)
		f.wantQueued(t, "child without owner", nil, []types.UID{"owner"})
		f.put(newThing("owner"))
		f.wantQueued(t, "the owner is seen", nil, nil)
		if got := f.stands(referenceFrom("team", free("owner"))); got != present {
			t.Errorf("the owner's standing is %v", got)
		}
	})
	t.Run("an owner that was deleted, and its dependents once that is sure", func(t *testing.T) {
		t.Parallel()
		f := newFixture()
		owner, child := newThing("owner"), newThing("child", free("owner"))
		f.put(owner)
		f.put(child)
		f.take(owner)
		f.wantQueued(t, "owner deleted", []types.UID{"owner"}, nil)
		named := referenceFrom("team", free("owner"))
		references, isGone := f.references("owner")
		if len(references) != 1 || len(references[named]) != 1 || !isGone(named) {
			t.Fatalf("references %v, want one to what is gone", references)
		}
		f.markAbsent("owner", sets.New(named))
		f.wantQueued(t, "owner absent", []types.UID{"child"}, nil)
		if got := f.stands(referenceFrom("team", free("owner"))); got != absent {
			t.Errorf("the owner's standing is %v", got)
		}
		f.put(newThing("sibling", free("owner")))
		f.wantQueued(t, "another dependent", []types.UID{"sibling"}, nil)
		f.put(owner)
		f.queued()
		if got := f.stands(referenceFrom("team", free("owner"))); got != present {
			t.Errorf("the standing of an owner that came back is %v", got)
		}
	})
	t.Run("a dependent that names its owner wrongly", func(t *testing.T) {
		t.Parallel()
		for name, change := range map[string]func(*metav1.OwnerReference){
			"name": func(r *metav1.OwnerReference) { r.Name = "other" },
			"kind": func(r *metav1.OwnerReference) { r.Kind = "Global" },
		} {
			ref := free("owner")
			change(&ref)
			right, wrong := newThing("right", free("owner")), newThing("wrong", ref)
			f := newFixture()
			f.put(right)
			f.put(wrong)
			f.queued()
			f.put(newThing("owner"))
			f.wantQueued(t, name+": owner last", []types.UID{"wrong"}, nil)
			f = newFixture()
			f.put(newThing("owner"))
			f.put(right)
			f.put(wrong)
			f.wantQueued(t, name+": owner first", []types.UID{"wrong"}, nil)
		}
		f := newFixture()
		f.put(newThing("owner"))
		f.put(newThing("right", free("owner")))
		f.put(with(newThing("elsewhere", free("owner")), func(o *metadatainformers.Object) { o.Namespace = "other" }))
		f.wantQueued(t, "another namespace", []types.UID{"elsewhere"}, nil)
	})
	t.Run("a foreground deletion, and its end", func(t *testing.T) {
		t.Parallel()
		f := newFixture()
		owner := newThing("owner")
		one, two, other := newThing("one", blocking("owner")), newThing("two", blocking("owner")), newThing("other", free("owner"))
		for _, object := range []*metadatainformers.Object{owner, one, two, other} {
			f.put(object)
		}
		f.put(with(owner, inForeground))
		f.wantQueued(t, "it begins", []types.UID{"owner"}, nil)
		if all, blocking := f.dependents(item{things, owner}); len(all) != 3 || blocking != 2 {
			t.Errorf("%d dependents, %d of them block, want 3 and 2", len(all), blocking)
		}
		f.put(newThing("late", free("owner")))
		f.wantQueued(t, "a dependent comes late", []types.UID{"late"}, nil)
		f.take(one)
		f.wantQueued(t, "one goes", nil, nil)
		f.put(with(two, func(o *metadatainformers.Object) { o.Owners = []metav1.OwnerReference{free("owner")} }))
		f.wantQueued(t, "two stops to block", []types.UID{"owner", "two"}, nil)
	})
	t.Run("a foreground deletion, whatever others write into their references", func(t *testing.T) {
		t.Parallel()
		for _, ownerFirst := range []bool{true, false} {
			f := newFixture()
			owner := with(newThing("owner"), inForeground)
			if ownerFirst {
				f.put(owner)
			}
			child := newThing("child", renamed(func(r *metav1.OwnerReference) { r.APIVersion, r.Kind = "example.com/v0", "thing" }))
			f.put(child)
			f.put(with(newThing("elsewhere", blocking("owner")), func(o *metadatainformers.Object) { o.Namespace = "evil" }))
			for name, change := range map[string]func(*metav1.OwnerReference){
				"name": func(r *metav1.OwnerReference) { r.Name = "other" }, "kind": func(r *metav1.OwnerReference) { r.Kind = "Global" },
				"group": func(r *metav1.OwnerReference) { r.APIVersion = "example.org/v1" }, "no group": func(r *metav1.OwnerReference) { r.APIVersion = "/example.com/v1" },
				"letters": func(r *metav1.OwnerReference) { r.Kind = "THING" }, "list": func(r *metav1.OwnerReference) { r.Kind = "ThingList" },
			} {
				f.put(newThing(name, renamed(change), renamed(change)))
			}
			if !ownerFirst {
				f.put(owner)
			}
			all, blocking := f.dependents(item{things, owner})
			if len(all) != 1 || all[0].Object != child || blocking != 1 {
				t.Errorf("owner first %t: %d dependents, %d of them block, want only the child", ownerFirst, len(all), blocking)
			}
			f.queued()
			f.take(child)
			f.wantQueued(t, "the only dependent goes", []types.UID{"owner"}, nil)
			if f.hasDependents(item{things, owner}) {
				t.Error("it has dependents still")
			}
		}
	})
	t.Run("orphaning later, as dependents may not be seen yet", func(t *testing.T) {
		t.Parallel()
		f := newFixture()
		f.put(newThing("owner"))
		f.put(with(newThing("owner"), func(o *metadatainformers.Object) { o.Deleting, o.Orphan = true, true }))
		f.wantQueued(t, "it begins", nil, []types.UID{"owner"})
	})
	t.Run("an unobserved owner when its resource is served", func(t *testing.T) {
		t.Parallel()
		f := newFixture()
		f.put(newThing("child", free("owner")))
		f.queued()
		f.Synced(globals)
		f.wantQueued(t, "synced", []types.UID{"owner"}, nil)
	})
	t.Run("nothing when a resource is not served any more", func(t *testing.T) {
		t.Parallel()
		f := newFixture()
		owner := newThing("owner")
		f.put(owner)
		f.put(newThing("child", free("owner")))
		delete(f.known, keyOf(owner))
		f.Dropped(things, slices.Values([]*metadatainformers.Object{owner}))
		f.wantQueued(t, "dropped", nil, nil)
		if references, isGone := f.references("owner"); len(references) != 1 || isGone(referenceFrom("team", free("owner"))) {
			t.Errorf("references %v, want one to what may be there", references)
		}
	})
}

// TestGraphTakesLinearSteps doubles the references of objects: that at most doubles what the graph checks
// and queues.
func TestGraphTakesLinearSteps(t *testing.T) {
	t.Parallel()
	for name, refer := range map[string]func(int) metav1.OwnerReference{
		"owners of their own": func(i int) metav1.OwnerReference { return blocking(fmt.Sprint("owner-", i)) },
		"one UID": func(i int) metav1.OwnerReference {
			return renamed(func(r *metav1.OwnerReference) { r.Name = fmt.Sprint("owner-", i) })
		},
		"one UID, long fields": func(i int) metav1.OwnerReference {
			return renamed(func(r *metav1.OwnerReference) { r.APIVersion = strings.Repeat("a", 1000); r.Kind = fmt.Sprint(i) })
		},
		"each other": func(i int) metav1.OwnerReference { return blocking(fmt.Sprint("object-", i%3)) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			steps := func(references int) int {
				f := newFixture()
				var owners []metav1.OwnerReference
				for i := range references {
					owners = append(owners, refer(i))
				}
				random := rand.New(rand.NewPCG(1, 1))
				for i := range 3 {
					random.Shuffle(len(owners), func(i, j int) { owners[i], owners[j] = owners[j], owners[i] })
					f.put(with(newThing(fmt.Sprint("object-", i), owners...), inForeground))
				}
				for uid := range maps.Clone(f.unseen) {
					references, _ := f.references(uid)
					f.markAbsent(uid, sets.KeySet(references))
				}
				f.put(with(newThing("owner"), inForeground))
				for i := range 3 {
					object := with(newThing(fmt.Sprint("object-", i), owners[1:]...), inForeground)
					f.put(object)
					f.mustLook(item{things, object})
					f.awaited(object.UID)
					f.dependents(item{things, object})
				}
				for i := range 3 {
					f.take(newThing(fmt.Sprint("object-", i), owners[1:]...))
				}
				return f.steps + len(f.now) + len(f.later)
			}
			few, many := steps(1000), steps(2000)
			if few < 1000 && name != "each other" || many > 2*few+100 {
				t.Errorf("%d steps with 1000 references, %d with 2000", few, many)
			}
		})
	}
}

// TestGraphForgetsAbsentReferences lets one dependent keep the node of an owner, while others come and
// go with a reference of their own each.
func TestGraphForgetsAbsentReferences(t *testing.T) {
	t.Parallel()
	f := newFixture()
	f.put(newThing("stays", renamed(func(r *metav1.OwnerReference) { r.Kind = "Unknown" })))
	for i := range 100 {
		ref := renamed(func(r *metav1.OwnerReference) { r.Name = fmt.Sprint("made-up-", i) })
		free := ref
		free.BlockOwnerDeletion = nil
		child := newThing("child", ref, free)
		f.put(child)
		f.markAbsent("owner", sets.New(referenceFrom("team", ref)))
		if got := f.stands(referenceFrom("team", ref)); got != absent {
			t.Fatalf("the standing of an absent owner is %v", got)
		}
		f.put(newThing("child", free))
		if got := f.stands(referenceFrom("team", ref)); got != absent {
			t.Fatalf("the standing of an absent owner is %v after one of two references went", got)
		}
		f.take(newThing("child", free))
	}
	if got := len(f.nodes["owner"].absent); got > 0 {
		t.Errorf("%d absent references are kept that no object has", got)
	}
}

func TestGraphFindsCycles(t *testing.T) {
	t.Parallel()
	f := newFixture()
	a, b, c := newThing("a", blocking("c")), newThing("b", blocking("a")), newThing("c", blocking("b"))
	tail := newThing("tail", blocking("c"))
	for _, object := range []*metadatainformers.Object{a, b, c, tail} {
		f.put(object)
	}
	for i, object := range []*metadatainformers.Object{a, b, tail} {
		f.put(with(object, inForeground))
		if got := f.awaited(object.UID); len(got) > 0 {
			t.Errorf("%s waits for %v after %d of three began to wait", object.Name, got, i)
		}
	}
	f.put(with(c, inForeground))
	if got := f.awaited("c"); len(got) != 4 || got["b"].Object == nil {
		t.Errorf("in a cycle of three with a tail c waits for %v", got)
	}
	f.put(with(newThing("loop", blocking("elsewhere")), inForeground))
	f.put(with(newThing("elsewhere", blocking("loop")), func(o *metadatainformers.Object) { inForeground(o); o.Namespace = "evil" }))
	if got := f.awaited("loop"); len(got) > 0 {
		t.Errorf("a made-up cycle through another namespace makes loop wait for %v", got)
	}
	if got := f.awaited("tail"); len(got) > 0 {
		t.Errorf("an object without awaited dependents waits for %v", got)
	}
	if got := f.awaited("no such"); len(got) > 0 {
		t.Errorf("what is not there waits for %v", got)
	}
}

// TestGraphAgreesWithItsObjects tells a graph of random changes: whatever their
// order, it must end as a graph that received only the last state.
func TestGraphAgreesWithItsObjects(t *testing.T) {
	t.Parallel()
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 0))
		f := newFixture()
		for range 200 {
			name := fmt.Sprint(random.IntN(12))
			if before := f.known[types.NamespacedName{Namespace: "team", Name: name}]; before != nil && random.IntN(3) == 0 {
				f.take(before)
				continue
			}
			var owners []metav1.OwnerReference
			for range random.IntN(3) {
				ref := free(fmt.Sprint(random.IntN(12)))
				if random.IntN(2) == 0 {
					ref.BlockOwnerDeletion = yes
				}
				if random.IntN(4) == 0 {
					ref.Name = "another"
				}
				owners = append(owners, ref)
			}
			object := newThing(name, owners...)
			if random.IntN(5) == 0 {
				inForeground(object)
			}
			f.put(object)
		}
		fresh := newFixture()
		for _, object := range f.known {
			fresh.put(object)
		}
		if diff := cmp.Diff(fresh.describe(t), f.describe(t)); diff != "" {
			t.Fatalf("seed %d: the graph differs from one made of the same objects (-want +got):\n%s", seed, diff)
		}
	}
}

// describe returns the graph as text. Whether an owner is seen that no reference names depends on
// the order of events.
func (f *fixture) describe(t *testing.T) map[types.UID]string {
	t.Helper()
	described := map[types.UID]string{}
	for uid, n := range f.nodes {
		blocking, named := 0, n.Object != nil && (len(n.Owners) > 0 || waits(n.Object))
		for dependent := range n.dependents {
			named = named || n.Object != nil && dependsOn(dependent.Owners, dependent.Namespace, n.item)
			if n.Object != nil && blocksAny(dependent.References(uid), dependent.Namespace, n.item) {
				blocking++
			}
		}
		if n.Object != nil && n.blocking != blocking {
			t.Fatalf("%s has %d dependents that block, counted %d", uid, blocking, n.blocking)
		}
		var dependents []types.UID
		for dependent := range n.dependents {
			dependents = append(dependents, dependent.uid)
		}
		slices.Sort(dependents)
		if seen := f.unseen[uid] == nil; seen != (n.Object != nil) {
			t.Fatalf("%s is listed as seen: %t", uid, seen)
		}
		described[uid] = fmt.Sprintf("seen %t, dependents %v", named, dependents)
	}
	return described
}
