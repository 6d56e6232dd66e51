// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package maincopy

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/uuid"
)

// PairRecord keeps the pairs of a resource beside its objects in annex's Store. Clients cannot write there, as they
// can the metadata of objects. A *move.Exporter is one.
type PairRecord interface {
	// PutPair records a value for the UID of an object.
	PutPair(ctx context.Context, uid types.UID, value []byte) error
	// Pairs calls visit for each value that was recorded.
	Pairs(ctx context.Context, visit func(uid types.UID, value []byte) error) error
}

// Pairs holds the UIDs of objects that were created in annex, and of those that were created
// for them in the main cluster. The Syncers of a group share one.
type Pairs struct {
	group string
	// namespaced is the scope of each kind, in lower case, of the group.
	namespaced map[string]bool

	mu sync.Mutex
	// created has UIDs in the main cluster by the objects of annex.
	created map[object]types.UID
	// gone maps objects that the main cluster no longer has to UIDs that no object has. Its keys have either UID.
	gone map[object]types.UID
	// waiting are the objects with an owner that has no pair yet. Most owners never get one.
	waiting map[types.UID]sets.Set[waiter]
}

// object is an object of the group as an owner reference names it. A reference that has the UID of another object
// does not stand for that one: clients can write any UID.
type object struct {
	kind, namespace, name string
	uid                   types.UID
}

// waiter is an object to write again.
type waiter struct {
	by  interface{ Again(key string) }
	key string
}

// NewPairs returns an empty Pairs for the resources of a group. Load fills it.
func NewPairs(group string, resources ...Resource) *Pairs {
	p := &Pairs{
		group: group, namespaced: map[string]bool{}, created: map[object]types.UID{}, gone: map[object]types.UID{}, waiting: map[types.UID]sets.Set[waiter]{},
	}
	for _, of := range resources {
		p.namespaced[strings.ToLower(of.Kind)] = of.Namespaced
	}
	return p
}

// pair is a PairRecord's value for the UID of an object in annex.
type pair struct {
	Main      types.UID `json:"main"`
	Namespace string    `json:"namespace,omitempty"`
	Name      string    `json:"name"`
}

// Load adds what was recorded for a resource.
func (p *Pairs) Load(ctx context.Context, of Resource, record PairRecord) error {
	return record.Pairs(ctx, func(uid types.UID, value []byte) error {
		var recorded pair
		if err := json.Unmarshal(value, &recorded); err != nil {
			return fmt.Errorf("decode it: %w", err)
		}
		p.add(object{strings.ToLower(of.Kind), recorded.Namespace, recorded.Name, uid}, recorded.Main)
		return nil
	})
}

// record adds the pair of an object that was created for one of annex, and keeps it.
func (p *Pairs) record(ctx context.Context, record PairRecord, annex *unstructured.Unstructured, main types.UID) error {
	value, err := json.Marshal(pair{Main: main, Namespace: annex.GetNamespace(), Name: annex.GetName()})
	if err == nil {
		err = record.PutPair(ctx, annex.GetUID(), value)
	}
	if err == nil {
		p.add(objectOf(annex), main)
	}
	return err
}

func objectOf(of *unstructured.Unstructured) object {
	return object{strings.ToLower(of.GetKind()), of.GetNamespace(), of.GetName(), of.GetUID()}
}

// Len returns the number of pairs.
func (p *Pairs) Len() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.created)
}

// add adds a pair, and lets the objects that wait for it be written again.
func (p *Pairs) add(annex object, main types.UID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.created[annex] == main {
		return
	}
	p.created[annex] = main
	for waiting := range p.waiting[annex.uid] {
		waiting.by.Again(waiting.key)
	}
}

// owner returns the object of the group that a reference in a namespace names, if it names one.
func (p *Pairs) owner(namespace string, reference metav1.OwnerReference) (object, bool) {
	kind := strings.ToLower(reference.Kind) // the garbage collector accepts any case
	namespaced, known := p.namespaced[kind]
	group, _, _ := strings.Cut(reference.APIVersion, "/")
	if !known || group != p.group {
		return object{}, false
	}
	if !namespaced {
		namespace = ""
	}
	return object{kind, namespace, reference.Name, reference.UID}, true
}

func (p *Pairs) isPair(annex, main *unstructured.Unstructured) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.created[objectOf(annex)] == main.GetUID()
}

// inMain returns the UID in the main cluster of the owner that a reference in a namespace names.
func (p *Pairs) inMain(namespace string, reference metav1.OwnerReference) types.UID {
	owner, ok := p.owner(namespace, reference)
	if !ok {
		return reference.UID
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if main, ok := p.created[owner]; ok {
		owner.uid = main
	}
	if absent, ok := p.gone[owner]; ok {
		return absent
	}
	return owner.uid
}

// markGone returns a UID that no object has, for an owner of the main cluster that is gone.
func (p *Pairs) markGone(owner object) types.UID {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.gone[owner] == "" {
		absent := uuid.NewUUID()
		p.gone[owner] = absent
		owner.uid = absent
		p.gone[owner] = absent
	}
	return p.gone[owner]
}

func (p *Pairs) isGone(owner object) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.gone[owner] != ""
}

// wait lets an object be written again whenever the UID of one of its owners changes.
func (p *Pairs) wait(owner types.UID, w waiter) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.waiting[owner] == nil {
		p.waiting[owner] = sets.New[waiter]()
	}
	p.waiting[owner].Insert(w)
}
