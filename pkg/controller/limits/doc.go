// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package limits says in the status of each HostedResource with limits, and in
// metrics, how full these are. It does not enforce them: that is done where objects
// are written.
package limits
