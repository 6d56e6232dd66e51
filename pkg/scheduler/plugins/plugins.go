// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package plugins contains the filters and scores of the scheduler, one per file. Each is
// a pure function.
package plugins

import "github.com/annex-dev/annex/pkg/scheduler/framework"

// All returns the plugins. A new one is a file and a line here.
func All() *framework.Plugins {
	p := &framework.Plugins{}
	p.AddFilter("Ready", ready)
	p.AddFilter("ResourcesFit", resourcesFit)
	p.AddFilter("Selector", selector)
	p.AddFilter("Taints", taints)
	p.AddFilter("Unschedulable", unschedulable)
	p.AddFilter("Version", etcdVersion)

	p.AddScore("GroupAffinity", 1, groupAffinity)
	p.AddScore("GroupAntiAffinity", 2, groupAntiAffinity)
	p.AddScore("LeastAllocated", 2, leastAllocated)
	p.AddScore("Pressure", 3, pressure)
	p.AddScore("PreviousStore", 3, previousStore)
	// More than all other scores together, so that one untolerated PreferNoSchedule taint
	// outweighs them, with room for more scores.
	p.AddScore("Taints", 30, preferredTaints)
	return p
}
