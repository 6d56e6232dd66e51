// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package plugins

import "github.com/annex-dev/annex/pkg/scheduler/framework"

// leastAllocated prefers the Store with the largest free part, of storage or objects,
// whichever is scarcer. A Store without limits counts as half free.
func leastAllocated(resource *framework.Resource, store *framework.Store) int64 {
	const unknown = framework.MaxScore / 2
	score, known := int64(framework.MaxScore), false
	for _, d := range dimensions {
		limit, limited := store.Limit(d.name)
		if !limited || limit <= 0 {
			continue
		}
		free := max(0, limit-d.of(store.Allocated())-d.of(resource.Expected()))
		// In floats: MaxScore times a large capacity overflows.
		score, known = min(score, int64(float64(free)/float64(limit)*framework.MaxScore)), true
	}
	if !known {
		return unknown
	}
	return score
}
