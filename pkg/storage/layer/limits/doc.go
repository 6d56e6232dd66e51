// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package limits enforces the limits of a HostedResource on the number of objects and the bytes
// that these take in the Store, for the resource as a whole and in each namespace. It is a layer
// over the Store's keys and values, so it counts what is really stored.
//
// Limits hold with any number of replicas. Every write that may add to a limited resource also
// writes a key of the resource, the fence, on condition that the fence has not changed since the
// writer last read it; and the writer has counted everything up to that write of the fence. So
// two such writes are never based on the same count. Deletes and updates that do not grow an
// object need no fence and are never refused. Nor are writes that are exempt (isExempt); they
// are counted.
//
// The bytes that an update adds are known only with the value that it replaces. That is read
// only if the update would exceed the limit as a new object.
package limits
