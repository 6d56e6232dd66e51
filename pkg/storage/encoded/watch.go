// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package encoded

import (
	"sync"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
)

// mapEvents replaces the objects of a watch. Unlike watch.Filter it ends when it is stopped,
// also while no events are read.
func mapEvents(events watch.Interface, replace func(runtime.Object) runtime.Object) watch.Interface {
	m := &mapped{events: events, result: make(chan watch.Event), stopped: make(chan struct{})}
	go m.run(replace)
	return m
}

type mapped struct {
	events  watch.Interface
	result  chan watch.Event
	stopped chan struct{}
	once    sync.Once
}

func (m *mapped) run(replace func(runtime.Object) runtime.Object) {
	defer close(m.result)
	for event := range m.events.ResultChan() {
		event.Object = replace(event.Object)
		select {
		case m.result <- event:
		case <-m.stopped:
			return
		}
	}
}

// ResultChan implements watch.Interface.
func (m *mapped) ResultChan() <-chan watch.Event { return m.result }

// Stop implements watch.Interface.
func (m *mapped) Stop() {
	m.once.Do(func() { close(m.stopped) })
	m.events.Stop()
}
