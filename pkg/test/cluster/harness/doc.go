// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package harness tests the main cluster that the other suites run on, with build
// tag cluster.
package harness
