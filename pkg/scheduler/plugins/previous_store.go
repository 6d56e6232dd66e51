// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package plugins

import "github.com/annex-dev/annex/pkg/scheduler/framework"

// previousStore returns a resource that is deleted and created again, as when a chart is
// reinstalled, to the same Store.
func previousStore(resource *framework.Resource, store *framework.Store) int64 {
	if resource.Previous == "" || resource.Previous == store.Name {
		return framework.MaxScore
	}
	return 0
}
