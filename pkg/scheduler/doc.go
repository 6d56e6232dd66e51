// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package scheduler places HostedResources on Stores, as kube-scheduler places Pods
// on nodes.
//
// A HostedResource without a Store waits in a queue, the one with the highest
// priority first. One at a time is decided on, from what a cache knows of the Stores:
// all filters are asked about all Stores, and all scores about those that fit. The
// choice is assumed to hold at once, so that the next decision reckons with it, and
// written through the binding subresource meanwhile, many at a time.
//
// One that fits nowhere waits until something changes: filters are pure functions, so
// each change of a Store is tried on everything that waits, and what fits now is
// decided on at once. Only what failed, or would fail in other words, backs off.
//
// The scheduler is a client of the API like any other. Two with the same name would
// not harm each other, for a HostedResource is bound once.
package scheduler
