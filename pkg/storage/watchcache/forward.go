// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package watchcache

import (
	"context"
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
)

// Forward returns a watch of the events of another as change returns them. Unlike watch.Filter it ends when it is
// stopped, also while no events are read.
func Forward(events watch.Interface, change watch.FilterFunc) watch.Interface {
	f := newForwarder(context.Background(), cap(events.ResultChan()))
	go func() {
		defer close(f.result)
		f.forward(events, change)
	}()
	return f
}

// MapEvents replaces the objects of a watch.
func MapEvents(events watch.Interface, replace func(runtime.Object) runtime.Object) watch.Interface {
	return Forward(events, func(event watch.Event) (watch.Event, bool) {
		event.Object = replace(event.Object)
		return event, true
	})
}

// ForwardLater returns a watch of the events of another, which open returns later. An error of open is an event.
func ForwardLater(ctx context.Context, open func(context.Context) (watch.Interface, error)) watch.Interface {
	f := newForwarder(ctx, 0)
	go func() {
		defer close(f.result)
		defer f.Stop()
		events, err := open(f.ctx)
		switch {
		case err == nil:
			f.forward(events, func(event watch.Event) (watch.Event, bool) { return event, true })
		case f.ctx.Err() == nil:
			f.send(ErrorEvent(err))
		}
	}()
	return f
}

// ErrorEvent returns the event of an error, as upstream's watch cache does.
func ErrorEvent(err error) watch.Event {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		status = apierrors.NewInternalError(err)
	}
	reported := status.Status()
	return watch.Event{Type: watch.Error, Object: &reported}
}

// forwarder is a watch that ends with its context.
type forwarder struct {
	result chan watch.Event
	ctx    context.Context
	cancel context.CancelFunc
}

func newForwarder(ctx context.Context, size int) *forwarder {
	ctx, cancel := context.WithCancel(ctx)
	return &forwarder{result: make(chan watch.Event, size), ctx: ctx, cancel: cancel}
}

func (f *forwarder) forward(events watch.Interface, change watch.FilterFunc) {
	defer events.Stop()
	for {
		select {
		case event, open := <-events.ResultChan():
			if !open {
				return
			}
			if changed, keep := change(event); keep && !f.send(changed) {
				return
			}
		case <-f.ctx.Done():
			return
		}
	}
}

func (f *forwarder) send(event watch.Event) (sent bool) {
	select {
	case f.result <- event:
		return true
	case <-f.ctx.Done():
		return false
	}
}

// ResultChan implements watch.Interface.
func (f *forwarder) ResultChan() <-chan watch.Event { return f.result }

// Stop implements watch.Interface.
func (f *forwarder) Stop() { f.cancel() }
