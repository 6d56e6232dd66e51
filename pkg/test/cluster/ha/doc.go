// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package ha tests what clients of a main cluster notice when replicas of annex
// are restarted, killed and elected: nothing, or as little as can be.
package ha
