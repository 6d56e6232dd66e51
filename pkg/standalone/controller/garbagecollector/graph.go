// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package garbagecollector

import (
	"iter"
	"slices"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/annex-dev/annex/pkg/standalone/controller/metadatainformers"
)

// objects is where the graph finds owners that nobody referred to before.
type objects interface {
	ResourceFor(kind schema.GroupVersionKind) (metadatainformers.Resource, bool)
	Get(resource schema.GroupResource, namespace, name string) *metadatainformers.Object
}

// graph has a node for each object that has owners, is an owner, or waits for the
// garbage collector, and queues those for which there may be something to do.
type graph struct {
	objects objects
	// enqueue has a UID looked at now; enqueueLater a moment later, because what
	// is missing may be about to be seen.
	enqueue, enqueueLater func(types.UID)

	mu    sync.Mutex
	nodes map[types.UID]*node
	// unseen are the nodes without an object.
	unseen map[types.UID]*node
}

// node is an object, or an owner that somebody names.
type node struct {
	uid types.UID
	// object is nil while nobody saw the object; resource is the last it was of.
	object     *metadatainformers.Object
	resource   metadatainformers.Resource
	dependents map[*node]struct{}
	// absent are the references that were found to lead nowhere.
	absent map[reference]struct{}
	// gone is what was seen to be deleted.
	gone *metadatainformers.Object
}

var _ metadatainformers.Handler = &graph{}

func newGraph(objects objects, enqueue, enqueueLater func(types.UID)) *graph {
	return &graph{
		objects: objects, enqueue: enqueue, enqueueLater: enqueueLater,
		nodes: map[types.UID]*node{}, unseen: map[types.UID]*node{},
	}
}

// Added implements metadatainformers.Handler.
func (g *graph) Added(resource metadatainformers.Resource, object *metadatainformers.Object) {
	g.Updated(resource, nil, object)
}

// Updated implements metadatainformers.Handler.
func (g *graph) Updated(resource metadatainformers.Resource, _, after *metadatainformers.Object) {
	g.mu.Lock()
	defer g.mu.Unlock()
	n := g.nodes[after.UID]
	if n == nil {
		if len(after.Owners) == 0 && !waits(after) {
			return
		}
		n = g.add(after.UID)
	}
	before := n.object
	g.see(n, resource, after)
	var owners []metav1.OwnerReference
	if before != nil {
		owners = before.Owners
	}
	g.unlink(n, owners, after.Owners)
	g.link(n, owners)
	if waits(after) && (before == nil || !waits(before)) {
		if after.Orphan {
			// Dependents that were made just before may not have been seen yet.
			g.enqueueLater(n.uid)
		} else {
			g.enqueue(n.uid)
		}
	}
	g.prune(n)
}

// Deleted implements metadatainformers.Handler.
func (g *graph) Deleted(_ metadatainformers.Resource, object *metadatainformers.Object) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if n := g.lose(object); n != nil {
		n.gone = object
		g.enqueue(n.uid)
	}
}

// Synced implements metadatainformers.Handler. What is not served is not looked
// for; now it may be.
func (g *graph) Synced(metadatainformers.Resource) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for uid := range g.unseen {
		g.enqueue(uid)
	}
}

// Dropped implements metadatainformers.Handler. That an object is not served any
// more does not mean that it is gone.
func (g *graph) Dropped(_ metadatainformers.Resource, objects iter.Seq[*metadatainformers.Object]) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for object := range objects {
		g.lose(object)
	}
}

// add adds a node that nobody saw the object of.
func (g *graph) add(uid types.UID) *node {
	n := &node{uid: uid}
	g.nodes[uid], g.unseen[uid] = n, n
	return n
}

// see gives a node its object. Dependents that name another than that have to be
// looked at.
func (g *graph) see(n *node, resource metadatainformers.Resource, object *metadatainformers.Object) {
	first := n.object == nil
	n.resource, n.object, n.gone = resource, object, nil
	if !first {
		return
	}
	delete(g.unseen, n.uid)
	for ref := range n.absent {
		if ref.names(resource, object) {
			delete(n.absent, ref)
		}
	}
	for dependent := range n.dependents {
		if !dependent.isSeenToName(n) {
			g.enqueue(dependent.uid)
		}
	}
}

// isSeenToName reports whether all references of a dependent to an owner are to
// what the owner is seen to be.
func (n *node) isSeenToName(owner *node) bool {
	return !slices.ContainsFunc(n.object.Owners, func(ref metav1.OwnerReference) bool {
		return ref.UID == owner.uid && !referenceFrom(n.object.Namespace, ref).names(owner.resource, owner.object)
	})
}

// lose takes the object from its node, and returns the node if it stays because of
// its dependents.
func (g *graph) lose(object *metadatainformers.Object) *node {
	n := g.nodes[object.UID]
	if n == nil || n.object == nil {
		return nil
	}
	g.unlink(n, n.object.Owners, nil)
	n.object = nil
	g.unseen[n.uid] = n
	g.prune(n)
	if g.nodes[n.uid] == nil {
		return nil
	}
	return n
}

// prune removes a node that nothing depends on.
func (g *graph) prune(n *node) {
	if len(n.dependents) > 0 || n.object != nil && (len(n.object.Owners) > 0 || waits(n.object)) {
		return
	}
	delete(g.nodes, n.uid)
	delete(g.unseen, n.uid)
}

// unlink takes a node from the owners that it has no more, and queues those that
// waited for it and now wait for none.
func (g *graph) unlink(n *node, before, after []metav1.OwnerReference) {
	for _, ref := range before {
		owner := g.nodes[ref.UID]
		if owner == nil {
			continue
		}
		kept, blocking := false, false
		for _, other := range after {
			if other.UID == ref.UID {
				kept, blocking = true, blocking || blocks(other)
			}
		}
		if !kept {
			delete(owner.dependents, n)
		}
		if blocks(ref) && !blocking && owner.object != nil && waitsForDependents(owner.object) && !owner.isBlocked() {
			g.enqueue(owner.uid)
		}
		if owner != n {
			g.prune(owner)
		}
	}
}

// link adds a node to the owners that it has since before, and queues it or them
// if that may be a reason to delete it.
func (g *graph) link(n *node, before []metav1.OwnerReference) {
	for _, ref := range n.object.Owners {
		if slices.Contains(before, ref) {
			continue
		}
		owner := g.nodes[ref.UID]
		if owner == nil {
			owner = g.add(ref.UID)
		}
		if owner.dependents == nil {
			owner.dependents = map[*node]struct{}{}
		}
		owner.dependents[n] = struct{}{}
		named := referenceFrom(n.object.Namespace, ref)
		if owner.object == nil {
			g.lookUp(owner, named)
		}
		switch {
		case owner.isAbsentAs(named):
			g.enqueue(n.uid)
		case owner.object == nil:
			g.enqueueLater(owner.uid)
		case !named.names(owner.resource, owner.object), waitsForDependents(owner.object):
			g.enqueue(n.uid)
		}
	}
}

// lookUp gives an owner its object, if that is known and was of no interest until
// now. Objects that are of interest by themselves get theirs from their handler.
func (g *graph) lookUp(owner *node, named reference) {
	resource, served := g.objects.ResourceFor(named.groupVersionKind())
	if !served {
		return
	}
	namespace := ""
	if resource.Namespaced {
		namespace = named.namespace
	}
	object := g.objects.Get(resource.GroupResource(), namespace, named.name)
	if object != nil && object.UID == owner.uid && len(object.Owners) == 0 && !waits(object) {
		g.see(owner, resource, object)
	}
}

func (n *node) isAbsentAs(named reference) bool {
	_, absent := n.absent[named]
	return absent
}

// isBlocked reports whether a node has a dependent that blocks its deletion.
func (n *node) isBlocked() bool {
	for dependent := range n.dependents {
		if dependent.blocks(n) {
			return true
		}
	}
	return false
}

// blocks reports whether a node blocks the deletion of one of its owners.
func (n *node) blocks(owner *node) bool {
	return slices.ContainsFunc(n.object.Owners, func(ref metav1.OwnerReference) bool { return ref.UID == owner.uid && blocks(ref) })
}
