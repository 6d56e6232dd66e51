// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package scheduler places HostedResources on Stores, as kube-scheduler places Pods
// on nodes.
//
// A HostedResource goes through these steps:
//
//  1. An informer adds it (eventhandlers.go). It has no Store and names this scheduler,
//     so it becomes active in the queue (queue.go), ordered by priority.
//  2. Resources are popped and decided one at a time (scheduler.go), from the cache of
//     Stores (cache.go): all filters run for all Stores, and all scores for those that
//     fit (packages framework and plugins).
//  3. If a Store fits, the cache assumes the placement, so that the next decision takes
//     it into account, and the resource is bound concurrently. The informer then removes
//     it from the queue. If binding fails, the cache forgets the assumption, and the
//     resource becomes active again after a backoff.
//  4. If no Store fits, the condition and an event give the reasons (report.go), and the
//     resource is unschedulable in the queue. Filters are pure functions, so each change
//     of a Store is checked against all unschedulable resources: those that fit now
//     become active at once, those whose reasons changed after a backoff.
//
// The scheduler is a client of the API like any other. Two schedulers of the same name
// are safe, because a HostedResource is bound only once.
package scheduler
