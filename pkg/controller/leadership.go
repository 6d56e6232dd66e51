// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"sync/atomic"
	"time"

	"k8s.io/client-go/tools/cache"

	"github.com/annex-dev/annex/pkg/scheduler"
)

// leadership is one period in which this replica runs the controllers. It records what
// they registered with objects that outlive it. One goroutine at a time uses it.
type leadership struct {
	undo []func()
}

// onEnd calls undo when the leadership ends.
func (l *leadership) onEnd(undo func()) { l.undo = append(l.undo, undo) }

// end undoes all registrations.
func (l *leadership) end() {
	for _, undo := range l.undo {
		undo()
	}
	l.undo = nil
}

// forLeadership returns the Config of one leadership: with informers of its own, and
// with the server's informers wrapped so that handlers are removed at its end.
func (c Config) forLeadership(l *leadership) (Config, error) {
	c.AnnexHostedResourceInformer = inLeadership(c.AnnexHostedResourceInformer, l)
	c.AnnexStoreInformer = inLeadership(c.AnnexStoreInformer, l)
	c.AnnexMigrationInformer = inLeadership(c.AnnexMigrationInformer, l)
	c.AnnexInjectionProfileInformer = inLeadership(c.AnnexInjectionProfileInformer, l)
	c.AnnexStaticSourceInformer = inLeadership(c.AnnexStaticSourceInformer, l)
	c.AnnexDefinitionInformer = inLeadership(c.AnnexDefinitionInformer, l)
	c.events = scheduler.NewEventBroadcaster(c.Mode.events(c))
	l.onEnd(c.events.Shutdown)
	var err error
	c.Mode, err = c.Mode.forLeadership(c, l)
	return c, err
}

// typedInformer is an informer of one kind with its lister L, as they are generated.
type typedInformer[L any] interface {
	Informer() cache.SharedIndexInformer
	Lister() L
}

// typedLeadershipInformer is one of the server's informers, used in a leadership.
type typedLeadershipInformer[L any] struct {
	typedInformer[L]
	leadership *leadership
}

func inLeadership[L any](informer typedInformer[L], l *leadership) typedLeadershipInformer[L] {
	return typedLeadershipInformer[L]{informer, l}
}

// Informer returns an informer whose handlers are removed when the leadership ends.
func (i typedLeadershipInformer[L]) Informer() cache.SharedIndexInformer {
	return leadershipInformer{i.typedInformer.Informer(), i.leadership}
}

// leadershipInformer removes its handlers when the leadership ends.
type leadershipInformer struct {
	cache.SharedIndexInformer
	leadership *leadership
}

// AddEventHandler adds a handler for the leadership.
func (i leadershipInformer) AddEventHandler(handler cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error) {
	return i.AddEventHandlerWithOptions(handler, cache.HandlerOptions{})
}

// AddEventHandlerWithResyncPeriod adds a handler for the leadership.
func (i leadershipInformer) AddEventHandlerWithResyncPeriod(handler cache.ResourceEventHandler, resyncPeriod time.Duration) (cache.ResourceEventHandlerRegistration, error) {
	return i.AddEventHandlerWithOptions(handler, cache.HandlerOptions{ResyncPeriod: &resyncPeriod})
}

// AddEventHandlerWithOptions adds a handler for the leadership.
func (i leadershipInformer) AddEventHandlerWithOptions(handler cache.ResourceEventHandler, options cache.HandlerOptions) (cache.ResourceEventHandlerRegistration, error) {
	registration, err := i.SharedIndexInformer.AddEventHandlerWithOptions(handler, options)
	if err != nil {
		return nil, err
	}
	// It fails only if the informer has stopped.
	i.leadership.onEnd(func() { _ = i.RemoveEventHandler(registration) })
	return registration, nil
}

// caBundle is the server's CA bundle, used in a leadership.
type caBundle struct {
	CABundleSource
	leadership *leadership
}

// AddListener adds a listener for the leadership. The source cannot remove one: what
// stays registered there does nothing.
func (b caBundle) AddListener(listener func()) {
	var current atomic.Pointer[func()]
	current.Store(&listener)
	b.leadership.onEnd(func() { current.Store(nil) })
	b.CABundleSource.AddListener(func() {
		if listener := current.Load(); listener != nil {
			(*listener)()
		}
	})
}
