// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package routing

import (
	"context"
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/watch"
)

// watchLater returns a watch whose events are those of another, which open returns later. An
// error of open is an event.
func watchLater(ctx context.Context, open func(context.Context) (watch.Interface, error)) watch.Interface {
	ctx, cancel := context.WithCancel(ctx)
	w := &pendingWatch{events: make(chan watch.Event), stopped: ctx.Done(), stop: cancel}
	go w.run(ctx, open)
	return w
}

type pendingWatch struct {
	events  chan watch.Event
	stopped <-chan struct{}
	stop    context.CancelFunc
}

func (w *pendingWatch) run(ctx context.Context, open func(context.Context) (watch.Interface, error)) {
	defer close(w.events)
	defer w.stop()
	opened, err := open(ctx)
	if ctx.Err() != nil {
		if err == nil {
			opened.Stop()
		}
		return
	}
	if err != nil {
		w.send(errorEvent(err))
		return
	}
	defer opened.Stop()
	for {
		select {
		case event, open := <-opened.ResultChan():
			if !open || !w.send(event) {
				return
			}
		case <-w.stopped:
			return
		}
	}
}

func (w *pendingWatch) send(event watch.Event) (sent bool) {
	select {
	case w.events <- event:
		return true
	case <-w.stopped:
		return false
	}
}

// errorEvent returns the event of an error, as upstream's watch cache does.
func errorEvent(err error) watch.Event {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		status = apierrors.NewInternalError(err)
	}
	reported := status.Status()
	return watch.Event{Type: watch.Error, Object: &reported}
}

// ResultChan implements watch.Interface.
func (w *pendingWatch) ResultChan() <-chan watch.Event { return w.events }

// Stop implements watch.Interface.
func (w *pendingWatch) Stop() { w.stop() }
