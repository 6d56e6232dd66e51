// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package skew tests bin/annex together with bin/previous/annex, the previous release, with the promises of
// docs/releases.md: on one data directory, as replicas on one etcd, during a Migration, and with backups and commands.
package skew
