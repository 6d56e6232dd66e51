// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package differential compares the answers of annex byte for byte with those of an unmodified
// apiextensions-apiserver over the same etcd.
package differential
