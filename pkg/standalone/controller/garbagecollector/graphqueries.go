// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package garbagecollector

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/annex-dev/annex/pkg/standalone/controller/metadatainformers"
)

// This file is what workers ask the graph and tell it.

// item is an object with what it is of.
type item struct {
	metadatainformers.Resource
	*metadatainformers.Object
}

// item returns the object of a node. It is nil if nobody saw it, and known is false
// if the graph has no such node.
func (g *graph) item(uid types.UID) (of item, known bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	n := g.nodes[uid]
	if n == nil {
		return item{}, false
	}
	return item{n.resource, n.object}, true
}

// standing is what the graph knows of an owner that a dependent names.
type standing int

const (
	// unsure has to be looked up.
	unsure standing = iota
	// present is seen to be there.
	present
	// waiting is being deleted, and waits for its dependents to go first.
	waiting
	// absent was found not to be there.
	absent
)

// standings returns how each of the owners stands that an object has.
func (g *graph) standings(namespace string, owners []metav1.OwnerReference) []standing {
	g.mu.Lock()
	defer g.mu.Unlock()
	found := make([]standing, len(owners))
	for i, ref := range owners {
		owner, named := g.nodes[ref.UID], referenceFrom(namespace, ref)
		switch {
		case owner == nil:
		case owner.isAbsentAs(named):
			found[i] = absent
		case owner.object == nil || !named.names(owner.resource, owner.object):
		case waitsForDependents(owner.object):
			found[i] = waiting
		default:
			found[i] = present
		}
	}
	return found
}

// mustLook reports whether there may be a reason to delete an object. Owners that
// nobody saw are looked at by themselves.
func (g *graph) mustLook(of item) bool {
	if waits(of.Object) {
		return true
	}
	for i, stands := range g.standings(of.Namespace, of.Owners) {
		if stands == waiting || stands == absent || stands == unsure && g.isSeen(of.Owners[i].UID) {
			return true
		}
	}
	return false
}

func (g *graph) isSeen(uid types.UID) bool {
	found, known := g.item(uid)
	return known && found.Object != nil
}

// references returns how dependents name an owner that nobody saw, but for what is
// known to be absent, and what was seen to be deleted under which reference.
func (g *graph) references(uid types.UID) (unsettled []reference, gone func(reference) bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	n := g.nodes[uid]
	if n == nil || n.object != nil {
		return nil, nil
	}
	seen := sets.New[reference]()
	for dependent := range n.dependents {
		for _, ref := range dependent.object.Owners {
			named := referenceFrom(dependent.object.Namespace, ref)
			if ref.UID == uid && !n.isAbsentAs(named) && !seen.Has(named) {
				seen.Insert(named)
				unsettled = append(unsettled, named)
			}
		}
	}
	last, resource := n.gone, n.resource
	return unsettled, func(named reference) bool { return last != nil && named.names(resource, last) }
}

// naming returns the dependents that name an owner in one way.
func (g *graph) naming(named reference) []item {
	g.mu.Lock()
	defer g.mu.Unlock()
	n := g.nodes[named.uid]
	if n == nil {
		return nil
	}
	var found []item
	for dependent := range n.dependents {
		for _, ref := range dependent.object.Owners {
			if referenceFrom(dependent.object.Namespace, ref) == named {
				found = append(found, item{dependent.resource, dependent.object})
				break
			}
		}
	}
	return found
}

// markAbsent notes that a reference leads nowhere, and has its dependents looked at.
// What was seen in the meantime stays.
func (g *graph) markAbsent(named reference) {
	g.mu.Lock()
	defer g.mu.Unlock()
	n := g.nodes[named.uid]
	if n == nil || n.object != nil && named.names(n.resource, n.object) {
		return
	}
	if n.absent == nil {
		n.absent = map[reference]struct{}{}
	}
	n.absent[named] = struct{}{}
	for dependent := range n.dependents {
		g.enqueue(dependent.uid)
	}
}

// dependents returns all dependents of an object, and which of them block its
// deletion.
func (g *graph) dependents(uid types.UID) (all []item, blocking int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	n := g.nodes[uid]
	if n == nil {
		return nil, 0
	}
	all = make([]item, 0, len(n.dependents))
	for dependent := range n.dependents {
		all = append(all, item{dependent.resource, dependent.object})
		if dependent.blocks(n) {
			blocking++
		}
	}
	return all, blocking
}

// hasDependents reports whether an object has any dependent.
func (g *graph) hasDependents(uid types.UID) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	n := g.nodes[uid]
	return n != nil && len(n.dependents) > 0
}

// awaited returns the objects that one waits for because they wait themselves, and
// is empty unless it is one of them: then they all wait for each other for ever.
func (g *graph) awaited(uid types.UID) sets.Set[types.UID] {
	g.mu.Lock()
	defer g.mu.Unlock()
	found := sets.New[types.UID]()
	todo := []*node{g.nodes[uid]}
	for len(todo) > 0 {
		owner := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if owner == nil {
			continue
		}
		for dependent := range owner.dependents {
			if waitsForDependents(dependent.object) && dependent.blocks(owner) && !found.Has(dependent.uid) {
				found.Insert(dependent.uid)
				todo = append(todo, dependent)
			}
		}
	}
	if !found.Has(uid) {
		return nil
	}
	return found
}
