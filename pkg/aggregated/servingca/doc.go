// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package servingca is what annex shows to the main cluster that proxies
// requests to it, and what that cluster is told to verify it with.
//
// Shared is a CA of annex's own. It lives in a Secret of the main cluster, so
// that all replicas sign with the same one, and is replaced in time without a
// failed request:
//
//	stable ── a third of its life is left ──▶ the next CA joins the bundle
//	  ▲                                            │
//	  │                          every APIService of ours carries the bundle,
//	  │                              and has for the propagation time
//	the old CA leaves the bundle                   │
//	  │                                            ▼
//	  └── its last certificate has expired ── replicas sign with the next CA
//
// Every replica drives this; the resource version of the Secret decides whose
// step it is, and the losers read. What can tell two states apart is in the
// Secret, so that any replica goes on where another one stopped.
//
// Provided is a certificate that somebody else made, with a file of authorities.
package servingca
