// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package hosting tests how annex is installed in a main cluster and takes groups over from it. An
// aggregated annex syncs the labelled CRDs, and loses no object by any change of them. Its
// permissions are minimal, `annex doctor` and `annex diagnose` print commands that work, and
// InjectionProfiles apply on both sides.
package hosting
