// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package datadir manages the directory of everything annex keeps on disk: the embedded
// etcd, certificates and the administrator's kubeconfig.
//
// A marker file identifies it. A directory with other content is rejected before anything
// in it is created or changed. One process at a time uses it, guarded by an flock, which
// the kernel releases when the process ends.
package datadir
