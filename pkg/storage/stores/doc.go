// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package stores keeps the connections to the etcd clusters that Stores name: one
// for each Store, whatever number of resources is kept there.
//
// A Store's client stays the same for as long as the Store exists. What is below it,
// endpoints and credentials, may change at any time, and so what everybody else has
// built on the client need not be built again. Each request goes through a gate:
//
//   - Data passes only to and from the etcd that the Store was when it was claimed, with
//     all of its history since. Every answer of etcd names its cluster and revision, and
//     every request is made on the condition that the mark and the checkpoint are there
//     which annex left (docs/design/store-identity.md).
//   - While the Store is known to be down, requests are refused at once, with the
//     Store's name and the reason, instead of waiting for etcd until they time out.
//
// One goroutine for each Store looks at its etcd every few seconds and opens and
// shuts the gate. It is also what makes room in an etcd that ran out of it,
// where annex may.
package stores
