// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package conformance runs upstream's own storage suite, the Run functions of
// k8s.io/apiserver/pkg/storage/testing, over the storage that annex builds for a
// resource: routed to a Store, compressed and encrypted, with and without the watch
// cache, and with revisions as they are after a restore. It has nothing but tests.
//
// A test compares what is run here with what upstream exports, so that an upgrade
// that brings a new function fails until it is run or excused with a reason.
package conformance
