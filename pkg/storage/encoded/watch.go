// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package encoded

import (
	"sync"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
)

// MapEvents replaces the objects of a watch.
func MapEvents(events watch.Interface, replace func(runtime.Object) runtime.Object) watch.Interface {
	return pipe(events, func(event watch.Event) (watch.Event, bool) {
		event.Object = replace(event.Object)
		return event, true
	})
}

// filterEvents drops events of a watch.
func filterEvents(events watch.Interface, keep func(watch.Event) bool) watch.Interface {
	return pipe(events, func(event watch.Event) (watch.Event, bool) { return event, keep(event) })
}

// pipe is watch.Filter that ends when it is stopped, also while no events are read.
func pipe(events watch.Interface, filter watch.FilterFunc) watch.Interface {
	p := &piped{events: events, result: make(chan watch.Event, cap(events.ResultChan())), stopped: make(chan struct{})}
	go p.run(filter)
	return p
}

type piped struct {
	events  watch.Interface
	result  chan watch.Event
	stopped chan struct{}
	once    sync.Once
}

func (p *piped) run(filter watch.FilterFunc) {
	defer close(p.result)
	for event := range p.events.ResultChan() {
		filtered, keep := filter(event)
		if !keep {
			continue
		}
		select {
		case p.result <- filtered:
		case <-p.stopped:
			return
		}
	}
}

// ResultChan implements watch.Interface.
func (p *piped) ResultChan() <-chan watch.Event { return p.result }

// Stop implements watch.Interface.
func (p *piped) Stop() {
	p.once.Do(func() { close(p.stopped) })
	p.events.Stop()
}
