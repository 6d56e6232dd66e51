// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package revision shows an etcd as if its history had begun later: in a view of an
// etcd client every revision, in requests, comparisons and responses, is higher
// than etcd's own by a constant, the offset.
//
// Clients of a restored resource have seen revisions that the etcd it was restored
// into will only reach much later, and revisions must never go backwards. With an
// offset above all that was seen, they go on from there; what clients still hold
// from before the offset is answered as an etcd does that has compacted it away,
// so that they list again.
//
// A view is indistinguishable from a plain client of an etcd that is compacted at
// the first revision above the offset. Load and Save keep offsets in the etcd itself.
package revision
