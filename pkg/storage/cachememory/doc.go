// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package cachememory keeps the watch caches of custom resources within a budget of memory: if
// all together exceed it, the largest are compressed, and then dropped. Their resources are read
// from the Store until there is room.
package cachememory
