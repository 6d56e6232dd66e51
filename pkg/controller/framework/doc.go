// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package framework holds what the controllers share: the work queue with its
// reconcile loop, handlers on informers, and a throttle for repeated writes.
package framework
