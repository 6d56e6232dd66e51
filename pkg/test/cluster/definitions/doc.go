// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package definitions tests that an aggregated annex syncs the CRDs of the main cluster
// that are labelled annex.dev/hosted: which groups it takes over, which it refuses with
// which reason, and that no change of a CRD loses an object.
package definitions
