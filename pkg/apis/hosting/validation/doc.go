// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package validation validates objects of the hosting group.
package validation
