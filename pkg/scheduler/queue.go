// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"slices"
	"time"

	"k8s.io/client-go/util/workqueue"
)

// firstBackoff and maxBackoff bound the delay before a failed resource is tried again.
const (
	firstBackoff = time.Second
	maxBackoff   = time.Minute
)

// newQueue returns a queue of resources that wait for a decision. Those that fit on no Store
// are not in it: the cache checks changes against them.
func newQueue(priority func(name string) int32) workqueue.TypedRateLimitingInterface[string] {
	ordered := workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[string]{Queue: &byPriority{priority: priority}})
	return workqueue.NewTypedRateLimitingQueueWithConfig(
		workqueue.NewTypedItemExponentialFailureRateLimiter[string](firstBackoff, maxBackoff),
		workqueue.TypedRateLimitingQueueConfig[string]{
			DelayingQueue: workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[string]{Queue: ordered}),
		},
	)
}

// byPriority has the resources with the highest priority first, and those with the same in
// the order in which they were added.
type byPriority struct {
	priority func(name string) int32
	items    []queued
}

type queued struct {
	name     string
	priority int32
}

// Push implements workqueue.Queue.
func (q *byPriority) Push(name string) {
	item := queued{name, q.priority(name)}
	at, _ := slices.BinarySearchFunc(q.items, item, func(other, item queued) int {
		if other.priority >= item.priority {
			return -1
		}
		return 1
	})
	q.items = slices.Insert(q.items, at, item)
}

// Touch implements workqueue.Queue: the priority may have changed.
func (q *byPriority) Touch(name string) {
	at := slices.IndexFunc(q.items, func(item queued) bool { return item.name == name })
	if at >= 0 && q.items[at].priority != q.priority(name) {
		q.items = slices.Delete(q.items, at, at+1)
		q.Push(name)
	}
}

// Len implements workqueue.Queue.
func (q *byPriority) Len() int { return len(q.items) }

// Pop implements workqueue.Queue.
func (q *byPriority) Pop() string {
	first := q.items[0]
	q.items = slices.Delete(q.items, 0, 1)
	return first.name
}
