// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package plan computes what upstream would store for a creation or an update of a custom resource, from the JSON of the
// request and of the stored object, without decoding either. It adds the defaults that the request lacks (defaults.go). It
// plans only what is certain: a result that validation accepts and that pruning does not change. Of everything else it
// returns an Unsure, and upstream's handler has to serve the request, which also words all errors and warnings.
//
// A Schema compares JSON with a compiled schema (rule.go, check.go), finds the fields that changed (diff.go), and gives
// them to the manager that writes (managed.go), as sigs.k8s.io/structured-merge-diff does. It merges apply configurations of
// fields that their manager has applied before (apply.go). It marks objects with finalizers as deleted (delete.go).
package plan
