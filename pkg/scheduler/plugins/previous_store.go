// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package plugins

import "github.com/annex-dev/annex/pkg/scheduler/framework"

func init() { registered.AddScore("PreviousStore", 3, previousStore) }

// previousStore puts a resource that is deleted and made again, as when a chart is installed
// anew, where it was: that is where its operators expect it.
func previousStore(resource *framework.Resource, store *framework.Store) int64 {
	if resource.Previous == "" || resource.Previous == store.Name {
		return framework.MaxScore
	}
	return 0
}
