// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package groupmove tests Migrations of groups: between a real kube-apiserver with a garbage collector
// and annex, while clients read and write. It also runs `make demo`, which moves a group in a cluster of
// its own.
package groupmove
