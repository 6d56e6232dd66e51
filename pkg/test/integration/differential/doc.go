// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package differential compares the answers of annex byte for byte with those of upstream's
// handler and watch cache of custom resources, over the same objects in the same etcd.
package differential
