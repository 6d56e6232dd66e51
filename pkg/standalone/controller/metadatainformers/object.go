// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package metadatainformers

import (
	"slices"
	"unique"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

// Object is what is kept of an object. It is never changed: who has one may keep
// it.
type Object struct {
	Namespace, Name string
	UID             types.UID
	// Owners are the owner references as they are in the object.
	Owners []metav1.OwnerReference
	// Deleting says that its deletion was requested.
	Deleting bool
	// Foreground and Orphan say that it has the finalizer foregroundDeletion or
	// orphan.
	Foreground, Orphan bool
}

// equal reports whether two objects have the same to tell.
func (o *Object) equal(other *Object) bool {
	return o.UID == other.UID && o.Deleting == other.Deleting && o.Foreground == other.Foreground && o.Orphan == other.Orphan &&
		slices.EqualFunc(o.Owners, other.Owners, equalOwners)
}

func equalOwners(a, b metav1.OwnerReference) bool {
	return a.UID == b.UID && a.Name == b.Name && a.Kind == b.Kind && a.APIVersion == b.APIVersion &&
		ptr.Equal(a.Controller, b.Controller) && ptr.Equal(a.BlockOwnerDeletion, b.BlockOwnerDeletion)
}

// NewObject keeps what is needed of metadata, and nothing that holds on to the rest.
func NewObject(from *metav1.PartialObjectMetadata) *Object {
	object := &Object{
		Namespace:  intern(from.Namespace),
		Name:       from.Name,
		UID:        from.UID,
		Deleting:   from.DeletionTimestamp != nil,
		Foreground: slices.Contains(from.Finalizers, metav1.FinalizerDeleteDependents),
		Orphan:     slices.Contains(from.Finalizers, metav1.FinalizerOrphanDependents),
	}
	if len(from.OwnerReferences) > 0 {
		object.Owners = make([]metav1.OwnerReference, len(from.OwnerReferences))
	}
	for i, owner := range from.OwnerReferences {
		// Siblings share all that is said of their owner.
		object.Owners[i] = metav1.OwnerReference{
			APIVersion:         intern(owner.APIVersion),
			Kind:               intern(owner.Kind),
			Name:               intern(owner.Name),
			UID:                types.UID(intern(string(owner.UID))),
			Controller:         shared(owner.Controller),
			BlockOwnerDeletion: shared(owner.BlockOwnerDeletion),
		}
	}
	return object
}

// intern returns the one copy of a string that all who have it share.
func intern(s string) string { return unique.Make(s).Value() }

var yes, no = true, false

// shared returns a pointer to the same value that is not an allocation of its own.
func shared(value *bool) *bool {
	switch {
	case value == nil:
		return nil
	case *value:
		return &yes
	default:
		return &no
	}
}
