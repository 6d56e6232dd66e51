// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package etcdcluster runs an etcd cluster for a test as somebody else would run
// one: members are processes of their own, which can be killed, frozen and started
// again, and want TLS with certificates of their clients. What leads to a member can be cut
// and slowed down, or lead to a member of another cluster instead.
//
// A member is the test's own binary, started again: a package that imports this one
// needs nothing else for it.
package etcdcluster
