// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package scheduler places HostedResources on Stores, as kube-scheduler places Pods
// on nodes.
//
// A HostedResource goes through these steps:
//
//  1. An informer adds it (eventhandlers.go). It has no Store and names this scheduler,
//     so it is queued by priority (queue.go).
//  2. Resources are taken and decided one at a time (scheduler.go), from the cache of
//     Stores (cache.go): all filters run for all Stores, and all scores for those that
//     fit (packages framework and plugins).
//  3. If a Store fits, the cache assumes the placement, so that the next decision takes
//     it into account, and the resource is bound concurrently. If binding
//     fails, the cache drops the assumption, and the resource is queued again after a
//     backoff.
//  4. If no Store fits, the condition and an event give the reasons (report.go), and the
//     cache keeps them. Filters are pure functions, so each change of a Store is
//     checked against all unschedulable resources: those that fit now are queued at
//     once, those whose reasons changed after a backoff.
//
// The scheduler is a client of the API like any other. Two schedulers of the same name
// are safe, because a HostedResource is bound only once.
package scheduler
