// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package plugins are the filters and scores of the scheduler, one in each file. Each
// is a pure function that its file registers, so that a new one is one file and
// nothing else.
package plugins

import "github.com/annex-dev/annex/pkg/scheduler/framework"

// registered are the plugins of all files; it does not change after initialization.
var registered = &framework.Plugins{}

// All are the plugins that are compiled in.
func All() *framework.Plugins { return registered }
