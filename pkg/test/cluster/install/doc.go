// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package install tests that the manifests and the chart can be applied to a real
// main cluster, that annex has no more rights there than it needs, and that `annex
// doctor` finds what is broken and prints the command that mends it.
package install
