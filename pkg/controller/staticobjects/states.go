// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package staticobjects

import (
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/annex-dev/annex/pkg/staticobjects"
)

// phase is the result of the last attempt to apply an object.
type phase string

const (
	// applied: the mirror is as the static object.
	applied phase = "applied"
	// waiting: for its kind, its namespace, or the end of its deletion.
	waiting phase = "waiting"
	// refused: the API refuses it, or an ordinary object has its name.
	refused phase = "refused"
	// failing: for a reason that is not in the object.
	failing phase = "failing"
	// orphaned: the static object is gone, the mirror stays.
	orphaned phase = "orphaned"
	// kept: the static object may be in a part of the source that was not read.
	kept phase = "kept"
)

// phases are all phases, for metrics.
var phases = []phase{applied, waiting, refused, failing, orphaned, kept}

// state is the phase of an object, with its reason.
type state struct {
	phase
	// source is the source of the static object, or of a mirror without one.
	source string
	origin string
	// reason and message explain a phase different from applied.
	reason, message string
}

// states has the state of each object.
type states struct {
	mu  sync.Mutex
	all map[staticobjects.Key]state
	// changes has the changes of each source since the last call of take.
	changes map[string]*changes
}

// changes are reported by events.
type changes struct {
	written  map[string]int // by what was done
	problems []problem
}

// problem is an object with a problem.
type problem struct {
	key staticobjects.Key
	state
}

// maxReported bounds the events of an interval, and the problems in a status.
const maxReported = 20

func (s *states) get(key staticobjects.Key) state {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.all[key]
}

// set replaces the state of an object; one without a phase removes it. It returns false if it
// was the same.
func (s *states) set(key staticobjects.Key, after state) (changed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.all[key]
	if after.phase == "" {
		delete(s.all, key)
		return before.phase != ""
	}
	if s.all == nil {
		s.all = map[staticobjects.Key]state{}
	}
	s.all[key] = after
	if before == after {
		return false
	}
	isNews := before.phase != after.phase || before.reason != after.reason
	if c := s.changesOf(after.source); isNews && (after.phase == refused || after.phase == orphaned) && len(c.problems) < maxReported {
		c.problems = append(c.problems, problem{key, after})
	}
	return true
}

func (s *states) changesOf(source string) *changes {
	if s.changes == nil {
		s.changes = map[string]*changes{}
	}
	if s.changes[source] == nil {
		s.changes[source] = &changes{written: map[string]int{}}
	}
	return s.changes[source]
}

// wrote counts a write for events.
func (s *states) wrote(source, what string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.changesOf(source).written[what]++
}

// take returns the changes of a source since the last call.
func (s *states) take(source string) changes {
	s.mu.Lock()
	defer s.mu.Unlock()
	taken := *s.changesOf(source)
	delete(s.changes, source)
	return taken
}

// snapshot returns all states.
func (s *states) snapshot() map[staticobjects.Key]state {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.all)
}

// problemsOf returns the objects of a source that are neither applied nor kept, in the order of
// their names.
func problemsOf(source string, all map[staticobjects.Key]state) []problem {
	var found []problem
	for key, s := range all {
		if s.source == source && s.phase != applied && s.phase != kept {
			found = append(found, problem{key, s})
		}
	}
	slices.SortFunc(found, func(a, b problem) int { return strings.Compare(a.key.String(), b.key.String()) })
	return found
}
