// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package pki creates and renews the certificates of a standalone annex: a CA, the serving
// certificate, and the administrator's client certificate with its kubeconfig.
//
// It neither uses nor overwrites files that annex did not create: a replaced or damaged
// file is an error that names it.
//
// A certificate and its key are in one file, so that one rename replaces both: no reader,
// and no start after a kill -9, finds a pair that does not match.
package pki
