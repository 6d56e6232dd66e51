// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package etcdcluster runs an external etcd cluster for a test. Members are processes that
// can be killed, frozen and restarted, and require client certificates. Connections to a
// member can be redirected to a member of another cluster.
//
// A member is another process of the test binary, so importing the package is enough.
package etcdcluster
