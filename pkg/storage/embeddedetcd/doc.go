// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package embeddedetcd runs a single-member etcd inside the process.
//
// It is reachable through one unix socket in a folder that only its owner may
// enter, and in no other way: etcd has no login of its own here, so a TCP port,
// even on loopback, would let every local user read every Secret. There is no
// peer listener either. (A unix peer URL is no alternative: embed would open
// it in the abstract namespace, where file permissions do not reach.)
//
// etcd registers its metrics in prometheus.DefaultRegisterer when its packages
// are loaded, which is not the registry behind a Kubernetes server's /metrics:
// who serves metrics has to gather from both.
//
// The package imports nothing else of annex.
package embeddedetcd
