// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package demo tests `make demo`, with build tag cluster.
package demo
