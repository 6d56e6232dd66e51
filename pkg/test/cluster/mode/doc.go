// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package mode tests that an aggregated annex accepts exactly the logins of the main cluster,
// while that is up, down and recovering.
package mode
