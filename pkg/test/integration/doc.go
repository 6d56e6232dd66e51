// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package integration tests annex as its users meet it: the whole of `annex
// serve` runs, most of the time inside the test process, and tests are clients.
// Files are named after behaviour, not after packages.
//
// Tests share one server and keep apart by groups and namespaces of their own.
// What changes or ends a server starts another; what changes the whole process,
// such as a feature gate, starts the test binary again as `annex serve`.
package integration
