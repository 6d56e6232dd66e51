// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package leader has one of several replicas do what only one may do at a time.
//
// A replica holds a Lease while it leads. It is client-go's leader election with
// two differences. Losing the Lease ends the term, not the process: a server goes
// on serving and becomes a candidate again. And the Lease is given up only once
// everything that it guards has stopped, so that a successor never overlaps.
package leader
