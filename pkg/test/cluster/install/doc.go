// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package install tests that manifests and chart can be applied to a real main cluster, that
// annex has minimal permissions there, that `annex doctor` finds faults and prints the commands
// that fix them, and that `annex diagnose` prints those that move groups.
package install
