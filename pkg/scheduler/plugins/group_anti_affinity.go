// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package plugins

import "github.com/annex-dev/annex/pkg/scheduler/framework"

// groupAntiAffinity spreads a group's heavy resources, which clients tend to use at the
// same time.
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
