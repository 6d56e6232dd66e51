// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package watchcache

import (
	"maps"
	"slices"
	"strconv"
	"sync"

	"k8s.io/apimachinery/pkg/labels"
)

// maxSharedSets bounds the sets that new objects can share.
const maxSharedSets = 8192

// sharedSets lets objects with equal labels share a set: a map takes 300 bytes at least.
type sharedSets struct {
	mu   sync.Mutex
	sets map[string]labels.Set
}

// get returns an equal set, and whether it is new. It must not be changed.
func (s *sharedSets) get(set labels.Set) (shared labels.Set, isNew bool) {
	if len(set) == 0 {
		return nil, false
	}
	key := identity(set)
	s.mu.Lock()
	defer s.mu.Unlock()
	if known, ok := s.sets[key]; ok {
		return known, false
	}
	if s.sets == nil || len(s.sets) >= maxSharedSets {
		s.sets = map[string]labels.Set{}
	}
	s.sets[key] = set
	return set, true
}

// identity returns a string that differs for different sets. Fields may have any value, so that no
// separator is safe.
func identity(set labels.Set) string {
	var id []byte
	for _, key := range slices.Sorted(maps.Keys(set)) {
		for _, part := range []string{key, set[key]} {
			id = append(strconv.AppendInt(id, int64(len(part)), 10), ':')
			id = append(id, part...)
		}
	}
	return string(id)
}
