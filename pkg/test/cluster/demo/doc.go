// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package demo keeps `make demo` true, with build tag cluster.
package demo
