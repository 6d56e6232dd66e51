// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package validation checks objects of the hosting group, each by itself or
// against what it was before.
package validation
