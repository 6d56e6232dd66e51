// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package groupmove tests Migrations of groups: between a real kube-apiserver with a garbage collector
// and annex, while clients read and write.
package groupmove
