// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package limits keeps a resource, and its part in each namespace, below what its
// HostedResource allows: a number of objects, and the bytes that they take in their
// Store. It is a layer over the Store's keys and values, so that it sees what is
// really stored, whoever writes it.
//
// A limit holds at any number of replicas. Every write that may bring a limited
// resource closer to a limit also writes a key of the resource, the fence, on
// condition that the fence is as the writer knows it; and the writer has counted
// everything up to the write of the fence that it knows. So no two such writes are
// made on the same count. What only takes away, deletes and updates that do not
// grow, needs no fence and is never refused. Nor is what has a Pass; it is counted,
// and others may have to shrink for it.
//
// The bytes that an update adds are known only with the value that it replaces. That
// is read when the count would be exceeded were it a new object, and not before.
package limits
