// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package watchcache

import (
	"context"
	"errors"
	"io"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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

// Project replaces the objects of a watch. What all watches of an event share is projected when it
// is encoded, which is once for all.
func Project(events watch.Interface, project func(runtime.Object) runtime.Object) watch.Interface {
	return MapEvents(events, func(obj runtime.Object) runtime.Object {
		if event, ok := obj.(runtime.CacheableObject); ok {
			return shared{obj, event, project}
		}
		return project(obj)
	})
}

// shared is an event's object that all watches share.
type shared struct {
	runtime.Object
	event   runtime.CacheableObject
	project func(runtime.Object) runtime.Object
}

// CacheEncode implements runtime.CacheableObject.
func (s shared) CacheEncode(id runtime.Identifier, encode func(runtime.Object, io.Writer) error, w io.Writer) error {
	return s.event.CacheEncode(id, func(obj runtime.Object, w io.Writer) error { return encode(s.project(obj), w) }, w)
}

// GetObject implements runtime.CacheableObject.
func (s shared) GetObject() runtime.Object { return s.project(s.event.GetObject()) }

var _ metav1.ObjectMetaAccessor = shared{}

// GetObjectMeta implements metav1.ObjectMetaAccessor.
func (s shared) GetObjectMeta() metav1.Object {
	accessor, _ := s.event.(metav1.Object)
	return accessor
}
