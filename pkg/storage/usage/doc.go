// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package usage knows how many objects, and how many bytes of them, etcd holds
// of each resource, without asking for it again and again.
//
// A Tracker reads all keys once, in pages at one revision, and follows them from
// there with one watch. Each event brings the value that it replaced, so that the
// counts need no memory of single keys: what is kept is in proportion to the
// number of resources, not of objects.
//
// The counts are exact as of a revision. Whatever could make them differ (history
// compacted away under the watch, an event without the value it replaced) is
// noticed and has everything read again, while the last counts stay visible.
package usage
