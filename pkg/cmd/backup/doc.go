// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package backup implements `annex backup` and `annex restore`. They are clients of a
// running annex, which reads and writes its Stores part by part. Only a restore of a
// whole Store, for which no annex may run, writes to etcd directly.
package backup
