// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package garbagecollector

import (
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/annex-dev/annex/pkg/standalone/controller/metadatainformers"
)

// item is an object with its resource.
type item struct {
	metadatainformers.Resource
	*metadatainformers.Object
}

// item returns the object of a node, nil if it was not observed. known is false if there
// is no such node.
func (g *graph) item(uid types.UID) (of item, known bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	n := g.nodes[uid]
	if n == nil {
		return item{}, false
	}
	return n.item, true
}

// standing is the state of an owner in a reference, as far as the graph has it.
type standing int

const (
	// unsure owners must be read from the API.
	unsure standing = iota
	// misnamed owners too: an object with that UID was observed, and is not what the reference
	// names.
	misnamed
	// present owners were observed.
	present
	// waiting owners are being deleted, and wait for their dependents.
	waiting
	// absent owners were found not to exist.
	absent
)

// stands returns the state of an owner in a reference.
func (g *graph) stands(named reference) standing {
	g.mu.Lock()
	defer g.mu.Unlock()
	owner := g.nodes[named.uid]
	switch {
	case owner == nil:
		return unsure
	case owner.isAbsentAs(named):
		return absent
	case owner.Object == nil:
		return unsure
	case !named.names(owner.item):
		return misnamed
	case waitsForDependents(owner.Object):
		return waiting
	default:
		return present
	}
}

// mustLook reports whether there may be a reason to delete an object. Owners that were
// not observed are queued themselves.
func (g *graph) mustLook(of item) bool {
	return waits(of.Object) || slices.ContainsFunc(of.Owners, func(owner metav1.OwnerReference) bool {
		stands := g.stands(referenceFrom(of.Namespace, owner))
		return stands == waiting || stands == absent || stands == misnamed
	})
}

// references returns the references of dependents to an owner that was not observed,
// except those known to be absent, each with its dependents, and whether a reference
// matches a deleted object.
func (g *graph) references(uid types.UID) (unsettled map[reference][]item, gone func(reference) bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	n := g.nodes[uid]
	if n == nil || n.Object != nil {
		return nil, nil
	}
	unsettled = map[reference][]item{}
	for dependent := range n.dependents {
		for _, ref := range g.to(uid, dependent.Object) {
			if named := referenceFrom(dependent.Namespace, ref); !n.isAbsentAs(named) {
				unsettled[named] = append(unsettled[named], dependent.item)
			}
		}
	}
	last := item{n.Resource, n.gone}
	return unsettled, func(named reference) bool { return last.Object != nil && named.names(last) }
}

// markAbsent records that references to an owner have no object, and queues the dependents
// with them. An object that was observed in the meantime stays.
func (g *graph) markAbsent(uid types.UID, references sets.Set[reference]) {
	g.mu.Lock()
	defer g.mu.Unlock()
	n := g.nodes[uid]
	if n == nil {
		return
	}
	counts := map[reference]int{}
	for dependent := range n.dependents {
		for _, ref := range g.to(uid, dependent.Object) {
			named := referenceFrom(dependent.Namespace, ref)
			if references.Has(named) && (n.Object == nil || !named.names(n.item)) {
				counts[named]++
				g.enqueue(dependent.uid)
			}
		}
	}
	if n.absent == nil {
		n.absent = counts
	}
	maps.Copy(n.absent, counts)
}

// dependents returns the dependents of an object, and how many block its deletion.
func (g *graph) dependents(of item) (all []item, blocking int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	n := g.nodes[of.UID]
	if n == nil {
		return nil, 0
	}
	for dependent := range n.dependents {
		if dependsOn(g.to(of.UID, dependent.Object), dependent.Namespace, of) {
			all = append(all, dependent.item)
		}
	}
	return all, n.blocking
}

// dependsOn reports whether references from a namespace name an owner.
func dependsOn(references []metav1.OwnerReference, namespace string, owner item) bool {
	return slices.ContainsFunc(references, func(ref metav1.OwnerReference) bool { return referenceFrom(namespace, ref).names(owner) })
}

// hasDependents reports whether an object has any dependent.
func (g *graph) hasDependents(of item) bool {
	all, _ := g.dependents(of)
	return len(all) > 0
}

// awaited returns the objects that an object waits for, if it is one of them: such a
// cycle would never end.
func (g *graph) awaited(uid types.UID) map[types.UID]item {
	g.mu.Lock()
	defer g.mu.Unlock()
	found := map[types.UID]item{}
	todo := []*node{g.nodes[uid]}
	for len(todo) > 0 {
		owner := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if owner == nil || owner.Object == nil {
			continue
		}
		for dependent := range owner.dependents {
			if _, known := found[dependent.uid]; known || !waitsForDependents(dependent.Object) ||
				!blocksAny(g.to(owner.uid, dependent.Object), dependent.Namespace, owner.item) {
				continue
			}
			found[dependent.uid] = dependent.item
			todo = append(todo, dependent)
		}
	}
	if _, cyclic := found[uid]; !cyclic {
		return nil
	}
	return found
}
