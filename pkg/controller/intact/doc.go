// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package intact says in the status of each HostedResource, and in events, which of
// its objects cannot be read. It does not find them: they are found where objects are
// read.
package intact
