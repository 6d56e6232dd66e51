// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package staticobjects

import (
	"fmt"
	"maps"
	"slices"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
)

// Mirror is an object in the API that represents a static object, or did.
type Mirror struct {
	Key Key
	UID types.UID
	// Static is the UID of the static object.
	Static types.UID
	// Source is the name of the source.
	Source string
	// Hash is the hash of the static object when it was applied.
	Hash string
	// Orphaned is true for one that annex keeps without its static object.
	Orphaned bool
}

// MirrorOf returns an object of the API as a mirror. It returns false for an ordinary one.
func MirrorOf(key Key, object metav1.Object) (Mirror, bool) {
	annotations := object.GetAnnotations()
	mirror := Mirror{
		Key: key, UID: object.GetUID(),
		Static:   types.UID(annotations[hostingv1alpha1.StaticMirrorAnnotation]),
		Source:   annotations[hostingv1alpha1.StaticSourceAnnotation],
		Hash:     annotations[hostingv1alpha1.StaticHashAnnotation],
		Orphaned: annotations[hostingv1alpha1.StaticOrphanedAnnotation] != "",
	}
	return mirror, mirror.Static != ""
}

// IsOf reports whether the mirror belongs to a static object, and is up to date.
func (m Mirror) IsOf(object *Object) bool {
	return m.Static == object.UID && m.Source == object.Source && m.Hash == object.Hash && !m.Orphaned
}

// Manager holds the static objects of all sources, and the mirrors that are known.
type Manager struct {
	mu      sync.Mutex
	sources map[string]Snapshot
	// objects has the static objects that get a mirror; duplicates those with the name of
	// another, by their source.
	objects    map[Key]*Object
	duplicates map[string][]Problem
	mirrors    map[Key]Mirror
}

// NewManager returns a manager without sources and mirrors.
func NewManager() *Manager {
	return &Manager{sources: map[string]Snapshot{}, mirrors: map[Key]Mirror{}}
}

// SetSource replaces what a source has. It returns the names of objects that this changes: of
// those that were or are in the source, and of the mirrors of the source.
func (m *Manager) SetSource(source string, snapshot Snapshot) []Key {
	m.mu.Lock()
	defer m.mu.Unlock()
	wasComplete := m.sources[source].Complete
	m.sources[source] = snapshot
	before := m.objects
	m.arrange()
	changed := map[Key]bool{}
	for key, object := range before {
		if after := m.objects[key]; after == nil || after.UID != object.UID || after.Hash != object.Hash {
			changed[key] = true
		}
	}
	for key := range m.objects {
		if before[key] == nil {
			changed[key] = true
		}
	}
	// Those that are not in the source may be deleted from now on.
	if snapshot.Complete && !wasComplete {
		for key, mirror := range m.mirrors {
			if mirror.Source == source {
				changed[key] = true
			}
		}
	}
	return slices.Collect(maps.Keys(changed))
}

// arrange determines which objects get a mirror: if a name is there twice, the first in the
// order of sources, files and documents, which is the same on every replica.
func (m *Manager) arrange() {
	m.objects, m.duplicates = map[Key]*Object{}, map[string][]Problem{}
	for _, source := range hostingv1alpha1.StaticSources() {
		objects := m.sources[source].Objects
		for i := range objects {
			object := &objects[i]
			if first := m.objects[object.Key]; first != nil {
				m.duplicates[source] = append(m.duplicates[source], Problem{
					Origin: object.Origin, Reason: ReasonDuplicate,
					Message: fmt.Sprintf("%s is also in %s, which is used", object.Key, first.place()),
				})
				continue
			}
			m.objects[object.Key] = object
		}
	}
}

// place describes the source of an object, and its place there, for messages.
func (o *Object) place() string { return fmt.Sprintf("source %s %s", o.Source, o.Origin) }

// Source returns what a source has, with the objects that are there twice as problems. It
// returns false before an attempt to read the source has ended.
func (m *Manager) Source(source string) (snapshot Snapshot, read bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	snapshot, read = m.sources[source]
	snapshot.Problems = slices.Concat(snapshot.Problems, m.duplicates[source])
	return snapshot, read
}

// Object returns the static object that gets the mirror with a name, or nil.
func (m *Manager) Object(key Key) *Object {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.objects[key]
}

// Objects returns the static objects of a source that get a mirror.
func (m *Manager) Objects(source string) []*Object {
	m.mu.Lock()
	defer m.mu.Unlock()
	var objects []*Object
	for _, object := range m.objects {
		if object.Source == source {
			objects = append(objects, object)
		}
	}
	slices.SortFunc(objects, func(a, b *Object) int { return compareKeys(a.Key, b.Key) })
	return objects
}

// SetMirror adds or replaces a mirror.
func (m *Manager) SetMirror(mirror Mirror) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mirrors[mirror.Key] = mirror
}

// RemoveMirror removes the mirror with a name.
func (m *Manager) RemoveMirror(key Key) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.mirrors, key)
}

// Mirrors returns the mirrors for which accept returns true.
func (m *Manager) Mirrors(accept func(Mirror) bool) []Mirror {
	m.mu.Lock()
	defer m.mu.Unlock()
	var mirrors []Mirror
	for _, mirror := range m.mirrors {
		if accept(mirror) {
			mirrors = append(mirrors, mirror)
		}
	}
	slices.SortFunc(mirrors, func(a, b Mirror) int { return compareKeys(a.Key, b.Key) })
	return mirrors
}
