// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package scheduler places HostedResources on Stores, as kube-scheduler places Pods
// on nodes.
//
// The way of one:
//
//  1. An informer hears of it (follow.go). It has no Store and names this scheduler,
//     so it is active in the queue (queue.go), behind those with a higher priority.
//  2. One at a time is popped and decided on (scheduler.go), from what the cache
//     knows of the Stores (cache.go): all filters are asked about all Stores, and all
//     scores about those that fit (package framework, package plugins).
//  3. If one fits the cache assumes that it is there, so that the next decision
//     reckons with it, and it is bound meanwhile, many at a time. The informer hears
//     of that, and it leaves the queue. If binding fails the cache forgets the
//     assumption, and it is active again after a back-off.
//  4. If none fits the condition and an event say why (report.go), and it is
//     unschedulable in the queue. Filters are pure functions, so each change of a
//     Store is tried on all that is, and what fits now is active at once. What would
//     be refused in other words is, after a back-off.
//
// The scheduler is a client of the API like any other. Two with the same name would
// not harm each other, for a HostedResource is bound once.
package scheduler
