// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package release makes a release as docs/releases.md says.
package release
