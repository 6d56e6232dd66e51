// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package policystatus type-checks the expressions of validating admission policies
// against the schemas of what they match, and writes what it finds into their
// status. A policy works whatever it finds: schemas may change after it was made.
package policystatus
