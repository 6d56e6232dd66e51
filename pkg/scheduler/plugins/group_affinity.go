// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package plugins

import "github.com/annex-dev/annex/pkg/scheduler/framework"

// groupAffinity keeps a group's light resources on one Store, so that they are available
// or unavailable together.
func groupAffinity(resource *framework.Resource, store *framework.Store) int64 {
	if resource.Heavy() {
		return framework.MaxScore
	}
	for _, other := range store.Resources {
		if other.Group == resource.Group && other.Name != resource.Name && !other.Heavy() {
			return framework.MaxScore
		}
	}
	return 0
}
