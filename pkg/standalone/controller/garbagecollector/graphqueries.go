// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package garbagecollector

import (
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
	return item{n.resource, n.object}, true
}

// standing is the state of an owner in a reference, as far as the graph has it.
type standing int

const (
	// unsure owners must be read from the API.
	unsure standing = iota
	// present owners were observed.
	present
	// waiting owners are being deleted, and wait for their dependents.
	waiting
	// absent owners were found not to exist.
	absent
)

// standings returns the state of each of an object's owners.
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

// mustLook reports whether there may be a reason to delete an object. Owners that were
// not observed are queued themselves.
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

// references returns the references of dependents to an owner that was not observed,
// except those known to be absent, and whether a reference matches a deleted object.
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

// naming returns the dependents with a reference.
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

// markAbsent records that a reference has no object, and queues its dependents. An object
// that was observed in the meantime stays.
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

// dependents returns all dependents of an object, and how many block its deletion.
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

// awaited returns the objects that an object waits for, if it is one of them: such a
// cycle would never end.
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
