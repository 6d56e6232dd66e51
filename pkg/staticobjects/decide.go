// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package staticobjects

import (
	"cmp"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Action is performed on the object in the API with the name of a static object, or on a mirror.
type Action string

// All actions. Those without a write are the first ones.
const (
	// Nothing: there is neither a static object nor a mirror.
	Nothing Action = ""
	// UpToDate is the action for a mirror that is as the static object.
	UpToDate Action = "UpToDate"
	// NameTaken is the action for an ordinary object, which is never changed.
	NameTaken Action = "NameTaken"
	// WaitDeleted waits until a mirror that is being deleted is gone.
	WaitDeleted Action = "WaitDeleted"
	// Keep keeps a mirror because its source was not read completely.
	Keep Action = "Keep"
	// Orphaned is the action for a mirror that was orphaned before.
	Orphaned Action = "Orphaned"
	// Create creates the mirror.
	Create Action = "Create"
	// Update changes the mirror.
	Update Action = "Update"
	// Delete deletes the mirror.
	Delete Action = "Delete"
	// Orphan makes the mirror an object that users may change and delete.
	Orphan Action = "Orphan"
)

// Decision is an action and its reason.
type Decision struct {
	Action Action
	// Object is the static object, nil without one.
	Object *Object
	// Mirror is the mirror in the API. It is empty without one.
	Mirror Mirror
	// Message explains Keep, Orphan and Orphaned.
	Message string
}

// Decide returns the action for the object in the API, nil if there is none. configured
// reports whether this replica has a source.
func (m *Manager) Decide(key Key, live metav1.Object, configured func(source string) bool) Decision {
	d := Decision{Object: m.Object(key)}
	isMirror := false
	if live != nil {
		d.Mirror, isMirror = MirrorOf(key, live)
	}
	switch {
	case d.Object != nil && live == nil:
		d.Action = Create
	case d.Object != nil && !isMirror:
		d.Action = NameTaken
	case isMirror && live.GetDeletionTimestamp() != nil:
		d.Action = WaitDeleted
	case d.Object != nil && d.Mirror.IsOf(d.Object):
		d.Action = UpToDate
	case d.Object != nil:
		d.Action = Update
	case isMirror:
		d.Action, d.Message = m.leftover(d.Mirror, configured(d.Mirror.Source))
	}
	return d
}

// leftover returns the action for a mirror without a static object, and its reason.
func (m *Manager) leftover(mirror Mirror, configured bool) (Action, string) {
	snapshot, _ := m.Source(mirror.Source)
	switch {
	case mirror.Orphaned:
		return Orphaned, "annex keeps it without its static object; delete it when it is not needed"
	case !configured:
		return Orphan, fmt.Sprintf("the leading annex has no source %q", mirror.Source)
	case !snapshot.Complete:
		return Keep, fmt.Sprintf("the source %s was not read completely", mirror.Source)
	case mirror.Key.IsProtected():
		return Orphan, "its static object is gone, and other objects would be deleted with it"
	}
	return Delete, ""
}

func compareKeys(a, b Key) int {
	return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}
