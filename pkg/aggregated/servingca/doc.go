// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package servingca provides the certificate that annex serves to the main cluster,
// and the CA bundle that the main cluster verifies it with.
//
// Shared is a CA of annex's own. It is stored in a Secret of the main cluster, so
// that all replicas sign with the same one, and is rotated without a failed request:
//
//	stable ── a third of its life is left ──▶ the next CA joins the bundle
//	  ▲                                            │
//	  │                          every APIService of ours carries the bundle,
//	  │                              and has for the propagation time
//	the old CA leaves the bundle                   │
//	  │                                            ▼
//	  └── its last certificate has expired ── replicas sign with the next CA
//
// Every replica takes these steps; the resource version of the Secret decides which
// replica's write wins, and the others read it. All state is in the Secret, so that
// any replica continues where another stopped.
//
// Provided is a certificate that another tool issues, with a file of authorities.
package servingca
