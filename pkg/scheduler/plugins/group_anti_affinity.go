// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package plugins

import "github.com/annex-dev/annex/pkg/scheduler/framework"

func init() { registered.AddScore("GroupAntiAffinity", 2, groupAntiAffinity) }

// groupAntiAffinity keeps a group's heavy resources apart: who uses one heavy resource of a
// group uses the others at the same time.
func groupAntiAffinity(resource *framework.Resource, store *framework.Store) int64 {
	if !resource.Heavy() {
		return framework.MaxScore
	}
	others := int64(0)
	for _, other := range store.Resources {
		if other.Group == resource.Group && other.Name != resource.Name && other.Heavy() {
			others++
		}
	}
	return framework.MaxScore / (1 + others)
}
