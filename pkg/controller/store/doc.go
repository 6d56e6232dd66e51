// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package store keeps the status of Stores true: whether the etcd behind one
// takes reads and writes, how large it is, and what annex keeps in it.
//
// Writing that status is itself a write to the store it is about. So the status
// is written only when something worth reading has changed, and what the write
// does to the size of the database never is.
package store
