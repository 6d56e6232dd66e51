// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package pki makes and keeps the certificates of a standalone annex: a CA, the
// serving certificate, and the administrator's client certificate with its
// kubeconfig.
//
// What annex made it also renews. What it did not make, it refuses to use and
// never overwrites: a file that was replaced, or is damaged, is an error that
// names the file.
//
// A certificate shares one file with its key, so that both are replaced by one
// rename: a reader, or the next start after a kill -9, never sees a pair that
// does not match.
package pki
