// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"testing"

	"github.com/annex-dev/annex/pkg/test/expect"
)

func TestQueueOrder(t *testing.T) {
	t.Parallel()
	priorities := map[string]int32{"urgent": 10, "low": -1}
	q := newQueue(func(name string) int32 { return priorities[name] })
	defer q.ShutDown()
	for _, name := range []string{"first", "second", "urgent", "low", "raised", "third"} {
		q.Add(name)
	}
	q.Add("first") // it keeps its place
	priorities["raised"] = 5
	q.Add("raised")
	var order []string
	for q.Len() > 0 {
		name, _ := q.Get()
		order = append(order, name)
		q.Done(name)
	}
	expect.Equal(t, []string{"urgent", "raised", "first", "second", "third", "low"}, order, "order")
}
