// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package usage counts the objects and bytes of each resource in etcd.
//
// A Tracker reads all keys once, in pages at one revision, and then follows them with one
// watch. Each event contains the previous value, so memory is proportional to the number
// of resources and namespaces, not of objects.
//
// The counts are exact as of a revision. If the watch loses events or previous values to a
// compaction, all keys are read again; the last counts stay visible meanwhile.
package usage
