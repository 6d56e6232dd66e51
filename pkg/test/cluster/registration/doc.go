// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package registration tests what annex publishes in the main cluster, in what
// order, and what becomes of that when somebody edits or deletes it, claims it too,
// or stops annex.
package registration
