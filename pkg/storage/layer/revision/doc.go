// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package revision shifts the revisions of an etcd: in a view of an etcd client every revision,
// in requests, comparisons and responses, is higher than etcd's own by a constant offset.
//
// Clients of a restored resource have seen revisions that the new etcd reaches only much later,
// and revisions must never decrease. With an offset above all of these, they continue from
// there. Revisions from before the restore are answered as compacted, so that clients list
// again.
//
// A view is indistinguishable from a client of an etcd that was compacted at the first revision
// above the offset. Load and Save store offsets in the etcd itself.
package revision
