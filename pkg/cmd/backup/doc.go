// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package backup is the commands `annex backup` and `annex restore`. They are clients:
// a running annex reads and writes what is in its Stores, part by part. Only a whole
// Store that is brought back while no annex runs is written to its etcd from here.
package backup
