// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package plugins

import "github.com/annex-dev/annex/pkg/scheduler/framework"

func unschedulable(_ *framework.Resource, store *framework.Store) string {
	if store.Spec.Unschedulable {
		return "is unschedulable"
	}
	return ""
}
