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
	ResourceFor(kind schema.GroupKind) (metadatainformers.Resource, bool)
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
	// steps counts the references that were checked, for tests.
	steps int
}

// node is an object, or an owner in a reference.
type node struct {
	uid types.UID
	// item is the object, nil until it is observed, with its last resource.
	item
	// dependents have references with the UID of the node. Users of other namespaces can write
	// those too: only a reference that names the object makes it wait.
	dependents map[*node]struct{}
	// blocking counts those that block the deletion of the object, if that is observed.
	blocking int
	// absent counts the references of dependents that were found to have no object.
	absent map[reference]int
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
	before := n.Object
	if before == nil {
		before = &metadatainformers.Object{}
	}
	g.see(n, item{resource, after})
	g.link(n, before)
	g.unlink(n, before, after)
	if waits(after) && !waits(before) {
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
func (g *graph) see(n *node, of item) {
	first := n.Object == nil
	n.item, n.gone = of, nil
	if !first {
		return
	}
	delete(g.unseen, n.uid)
	for ref := range n.absent {
		if ref.names(of) {
			delete(n.absent, ref)
		}
	}
	n.blocking = 0
	for dependent := range n.dependents {
		refs := g.to(n.uid, dependent.Object)
		if blocksAny(refs, dependent.Namespace, of) {
			n.blocking++
		}
		if slices.ContainsFunc(refs, func(ref metav1.OwnerReference) bool { return !referenceFrom(dependent.Namespace, ref).names(of) }) {
			g.enqueue(dependent.uid)
		}
	}
}

// lose removes the object from its node. It returns the node if dependents keep it.
func (g *graph) lose(object *metadatainformers.Object) *node {
	n := g.nodes[object.UID]
	if n == nil || n.Object == nil {
		return nil
	}
	g.unlink(n, n.Object, &metadatainformers.Object{})
	n.Object = nil
	g.unseen[n.uid] = n
	g.prune(n)
	if g.nodes[n.uid] == nil {
		return nil
	}
	return n
}

// prune removes a node without any relation.
func (g *graph) prune(n *node) {
	if len(n.dependents) > 0 || n.Object != nil && (len(n.Owners) > 0 || waits(n.Object)) {
		return
	}
	delete(g.nodes, n.uid)
	delete(g.unseen, n.uid)
}

// byOwner returns references in the order of UIDs by UID.
func byOwner(owners []metav1.OwnerReference) iter.Seq2[types.UID, []metav1.OwnerReference] {
	return func(yield func(types.UID, []metav1.OwnerReference) bool) {
		for from, to := 0, 0; from < len(owners); from = to {
			for to < len(owners) && owners[to].UID == owners[from].UID {
				to++
			}
			if !yield(owners[from].UID, owners[from:to]) {
				return
			}
		}
	}
}

// to returns the references of an object to an owner.
func (g *graph) to(owner types.UID, object *metadatainformers.Object) []metav1.OwnerReference {
	found := object.References(owner)
	g.steps += 1 + len(found)
	return found
}

// unlink removes a node from owners that it no longer has. It follows link.
func (g *graph) unlink(n *node, before, after *metadatainformers.Object) {
	for uid, refs := range byOwner(before.Owners) {
		owner := g.nodes[uid]
		if owner == nil || len(g.to(uid, after)) > 0 {
			continue
		}
		delete(owner.dependents, n)
		owner.forgetAbsent(before.Namespace, refs)
		if owner.Object != nil {
			g.setBlocking(owner, blocksAny(refs, before.Namespace, owner.item), false)
		}
		if owner != n {
			g.prune(owner)
		}
	}
}

// link adds a node to its owners, and queues the nodes that this may be a reason to delete.
func (g *graph) link(n *node, before *metadatainformers.Object) {
	for uid, refs := range byOwner(n.Owners) {
		owner := g.nodes[uid]
		if owner == nil {
			owner = g.add(uid)
		}
		if owner.dependents == nil {
			owner.dependents = map[*node]struct{}{}
		}
		owner.dependents[n] = struct{}{}
		known := g.to(uid, before)
		if owner.Object != nil {
			g.setBlocking(owner, blocksAny(known, n.Namespace, owner.item), blocksAny(refs, n.Namespace, owner.item))
		}
		changed := !slices.EqualFunc(known, refs, metadatainformers.EqualOwners)
		for _, ref := range refs {
			named := referenceFrom(n.Namespace, ref)
			if owner.Object == nil {
				g.lookUp(owner, named)
			}
			if count := owner.absent[named]; count > 0 {
				owner.absent[named] = count + 1
			}
			switch {
			case !changed:
			case owner.isAbsentAs(named):
				g.enqueue(n.uid)
			case owner.Object == nil:
				g.enqueueLater(owner.uid)
			case !named.names(owner.item), waitsForDependents(owner.Object):
				g.enqueue(n.uid)
			}
		}
		owner.forgetAbsent(n.Namespace, known)
	}
}

// setBlocking counts a dependent that blocks the deletion of an owner, or does so no longer,
// and queues the owner if none does.
func (g *graph) setBlocking(owner *node, before, after bool) {
	switch {
	case !before && after:
		owner.blocking++
	case before && !after:
		if owner.blocking--; owner.blocking == 0 && waitsForDependents(owner.Object) {
			g.enqueue(owner.uid)
		}
	}
}

// forgetAbsent removes references of a dependent from those that were found to have no
// object.
func (n *node) forgetAbsent(namespace string, references []metav1.OwnerReference) {
	for _, ref := range references {
		named := referenceFrom(namespace, ref)
		if count := n.absent[named]; count > 1 {
			n.absent[named] = count - 1
		} else {
			delete(n.absent, named)
		}
	}
}

// lookUp sets the object of an owner that was irrelevant until now. Objects that are
// relevant themselves are set by their event.
func (g *graph) lookUp(owner *node, named reference) {
	resource, served := g.objects.ResourceFor(named.groupKind())
	if !served {
		return
	}
	namespace := ""
	if resource.Namespaced {
		namespace = named.namespace
	}
	object := g.objects.Get(resource.GroupResource(), namespace, named.name)
	if object != nil && object.UID == owner.uid && len(object.Owners) == 0 && !waits(object) {
		g.see(owner, item{resource, object})
	}
}

func (n *node) isAbsentAs(named reference) bool { return n.absent[named] > 0 }
