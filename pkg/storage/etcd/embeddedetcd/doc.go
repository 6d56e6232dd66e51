// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package embeddedetcd runs a single-member etcd inside the process.
//
// It is reachable only through one unix socket in a directory that only its owner may enter:
// etcd has no authentication here, so a TCP port, even on loopback, would let every local user
// read every Secret. There is no peer listener either. (A unix peer URL is no alternative: embed
// would open it in the abstract namespace, where file permissions do not apply.)
//
// etcd registers its metrics in prometheus.DefaultRegisterer when its packages are loaded, which
// is not the registry of a Kubernetes server's /metrics: handlers must gather from both.
//
// The package imports no other package of annex.
package embeddedetcd
