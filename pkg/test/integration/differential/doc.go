// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package differential compares annex's responses byte for byte with the responses of an unmodified
// apiextensions-apiserver over the same etcd.
package differential
