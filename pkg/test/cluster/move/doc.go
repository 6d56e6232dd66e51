// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package move tests moves of groups between a main cluster and annex.
package move
