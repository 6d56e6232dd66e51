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

// objects finds owners that had no dependents before.
type objects interface {
	ResourceFor(kind schema.GroupVersionKind) (metadatainformers.Resource, bool)
	Get(resource schema.GroupResource, namespace, name string) *metadatainformers.Object
}

// graph has a node for each object that has owners, is an owner, or waits for the garbage
// collector. It queues those that may need an action.
type graph struct {
	objects objects
	// enqueue queues a UID; enqueueLater after a delay, because a missing object may be
	// about to be observed.
	enqueue, enqueueLater func(types.UID)

	mu    sync.Mutex
	nodes map[types.UID]*node
	// unseen are the nodes without an object.
	unseen map[types.UID]*node
}

// node is an object, or an owner in a reference.
type node struct {
	uid types.UID
	// object is nil until the object is observed; resource is its last resource.
	object     *metadatainformers.Object
	resource   metadatainformers.Resource
	dependents map[*node]struct{}
	// absent are the references that were found to have no object.
	absent map[reference]struct{}
	// gone is the object that was deleted.
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
			// Dependents created just before may not have been observed yet.
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

// Synced implements metadatainformers.Handler. References to kinds that were not served
// can be resolved now.
func (g *graph) Synced(metadatainformers.Resource) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for uid := range g.unseen {
		g.enqueue(uid)
	}
}

// Dropped implements metadatainformers.Handler. Objects that are no longer served are not
// deleted.
func (g *graph) Dropped(_ metadatainformers.Resource, objects iter.Seq[*metadatainformers.Object]) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for object := range objects {
		g.lose(object)
	}
}

// add adds a node without an object.
func (g *graph) add(uid types.UID) *node {
	n := &node{uid: uid}
	g.nodes[uid], g.unseen[uid] = n, n
	return n
}

// see sets the object of a node, and queues dependents with references to a different
// object.
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

// isSeenToName reports whether all references of a dependent to an owner match the
// observed owner.
func (n *node) isSeenToName(owner *node) bool {
	return !slices.ContainsFunc(n.object.Owners, func(ref metav1.OwnerReference) bool {
		return ref.UID == owner.uid && !referenceFrom(n.object.Namespace, ref).names(owner.resource, owner.object)
	})
}

// lose removes the object from its node. It returns the node if dependents keep it.
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

// prune removes a node without any relation.
func (g *graph) prune(n *node) {
	if len(n.dependents) > 0 || n.object != nil && (len(n.object.Owners) > 0 || waits(n.object)) {
		return
	}
	delete(g.nodes, n.uid)
	delete(g.unseen, n.uid)
}

// unlink removes a node from its former owners, and queues those that no dependent blocks
// any longer.
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

// link adds a node to its new owners, and queues the nodes that this may be a reason to
// delete.
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

// lookUp sets the object of an owner that was irrelevant until now. Objects that are
// relevant themselves are set by their event.
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
