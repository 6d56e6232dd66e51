// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package leader elects one of several replicas with a Lease.
//
// It is client-go's leader election with two differences. A replica that loses the Lease
// does not exit: it continues to serve and becomes a candidate again. And the Lease is
// released only once everything that it guards has stopped, so that leaders never overlap.
package leader
