// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package staticobjects

import (
	"context"
	"maps"
	"slices"
	"sync"

	"github.com/annex-dev/annex/pkg/observers"
)

// maxBytes is the maximum size of a file, and of the response of a URL.
const maxBytes = 32 << 20

// ReasonDuplicate is the reason of the problem of an object that is in the sources twice.
const ReasonDuplicate = "Duplicate"

// Problem is a part of a source that cannot be used.
type Problem struct {
	// Origin is the file. It is empty for the whole source.
	Origin string
	Reason string
	// Message does not contain the origin.
	Message string
}

// Snapshot is the content of a source.
type Snapshot struct {
	// Objects are the objects of the source. A file that cannot be read has its previous ones.
	Objects []Object
	// Problems are the reasons why it is not complete.
	Problems []Problem
	// Complete is false unless all of the source was read at its last change. Nothing is
	// deleted then: what is missing may be in the part that was not read.
	Complete bool
}

// Source is a folder or a URL.
type Source interface {
	// Name is the name of its StaticSource.
	Name() string
	// Location is shown to users.
	Location() string
	// Run calls publish after each attempt to read the source, until ctx is done.
	Run(ctx context.Context, publish func(Snapshot))
}

// Sources are the sources of a replica. Every replica reads them, so that a new leader knows
// what they have.
type Sources struct {
	all     []Source
	changed observers.Set[func(source string)]

	mu        sync.Mutex
	snapshots map[string]Snapshot
}

// NewSources returns sources that are read once they run.
func NewSources(all ...Source) *Sources {
	return &Sources{all: all, snapshots: map[string]Snapshot{}}
}

// Locations returns the location of every source by its name.
func (s *Sources) Locations() map[string]string {
	locations := map[string]string{}
	for _, source := range s.all {
		locations[source.Name()] = source.Location()
	}
	return locations
}

// Snapshots returns the sources for which an attempt to read them has ended.
func (s *Sources) Snapshots() map[string]Snapshot {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.snapshots)
}

// AddHandler adds a function that is called after each attempt to read a source, until remove
// is called.
func (s *Sources) AddHandler(handler func(source string)) (remove func()) {
	return s.changed.Add(handler)
}

// Run reads the sources until ctx is done.
func (s *Sources) Run(ctx context.Context) {
	var running sync.WaitGroup
	defer running.Wait()
	for _, source := range s.all {
		running.Go(func() {
			source.Run(ctx, func(snapshot Snapshot) { s.publish(source.Name(), snapshot) })
		})
	}
}

func (s *Sources) publish(source string, snapshot Snapshot) {
	countRead(source, snapshot)
	s.mu.Lock()
	before, known := s.snapshots[source]
	s.snapshots[source] = snapshot
	s.mu.Unlock()
	if known && before.equal(snapshot) {
		return
	}
	s.changed.Notify(func(handler func(string)) { handler(source) })
}

// equal reports whether two snapshots of a source have the same content.
func (s Snapshot) equal(other Snapshot) bool {
	return s.Complete == other.Complete && slices.Equal(s.Problems, other.Problems) &&
		slices.EqualFunc(s.Objects, other.Objects, func(a, b Object) bool {
			return a.Key == b.Key && a.Hash == b.Hash && a.Origin == b.Origin
		})
}
