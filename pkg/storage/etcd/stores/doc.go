// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package stores has the connections to the etcd clusters of Stores: one for each Store, however
// many resources it has.
//
// The client of a Store stays the same while the Store exists. Endpoints and credentials below
// it may change at any time without rebuilding what uses the client. Each request passes a
// breaker:
//
//   - Requests reach only the etcd that the Store was claimed in, with all of its history since.
//     Every answer of etcd contains its cluster and revision, and every request is conditional
//     on annex's mark and checkpoint (docs/design/storage.md).
//   - While the Store is known to be unavailable, requests are refused at once with its name
//     and the reason, instead of timing out.
//
// One goroutine for each Store probes its etcd every few seconds and updates the breaker. It
// also frees space in a full etcd, where annex may.
package stores
