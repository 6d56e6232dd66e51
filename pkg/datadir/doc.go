// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package datadir owns the directory that holds everything annex keeps on
// disk: the embedded etcd, its PKI and the admin kubeconfig.
//
// A directory is annex's when it carries the marker file; a directory with
// other content is refused before anything in it is created or changed. One
// process at a time may use it, which an flock guards: the kernel drops the
// lock with the process, so a kill -9 never leaves a stale one behind.
package datadir
