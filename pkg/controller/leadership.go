// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"sync/atomic"
	"time"

	"k8s.io/client-go/tools/cache"

	"github.com/annex-dev/annex/pkg/scheduler"
)

// Leadership is one period in which this replica runs the controllers. It records what
// they registered with objects that outlive it. One goroutine at a time uses it.
type Leadership struct {
	undo []func()
}

// OnEnd calls undo when the leadership ends.
func (l *Leadership) OnEnd(undo func()) { l.undo = append(l.undo, undo) }

// End undoes all registrations.
func (l *Leadership) End() {
	for _, undo := range l.undo {
		undo()
	}
	l.undo = nil
}

// forLeadership returns the Config of one leadership: with informers of its own, and
// with the server's informers wrapped so that handlers are removed at its end.
func (c Config) forLeadership(l *Leadership) (Config, error) {
	c.AnnexHostedResourceInformer = InLeadership(c.AnnexHostedResourceInformer, l)
	c.AnnexStoreInformer = InLeadership(c.AnnexStoreInformer, l)
	c.AnnexMigrationInformer = InLeadership(c.AnnexMigrationInformer, l)
	c.AnnexInjectionProfileInformer = InLeadership(c.AnnexInjectionProfileInformer, l)
	c.AnnexStaticSourceInformer = InLeadership(c.AnnexStaticSourceInformer, l)
	c.AnnexDefinitionInformer = InLeadership(c.AnnexDefinitionInformer, l)
	c.events = scheduler.NewEventBroadcaster(c.Mode.Events(c))
	l.OnEnd(c.events.Shutdown)
	var err error
	c.Mode, err = c.Mode.ForLeadership(c, l)
	return c, err
}

// TypedInformer is a generated informer with its lister L.
type TypedInformer[L any] interface {
	Informer() cache.SharedIndexInformer
	Lister() L
}

// typedLeadershipInformer is one of the server's informers, used in a leadership.
type typedLeadershipInformer[L any] struct {
	TypedInformer[L]
	leadership *Leadership
}

// InLeadership returns one of the server's informers for use in a leadership: handlers are
// removed at its end.
func InLeadership[L any](informer TypedInformer[L], l *Leadership) TypedInformer[L] {
	return typedLeadershipInformer[L]{informer, l}
}

// Informer returns an informer whose handlers are removed when the leadership ends.
func (i typedLeadershipInformer[L]) Informer() cache.SharedIndexInformer {
	return i.leadership.Informer(i.TypedInformer.Informer())
}

// Informer returns one of the server's informers, whose handlers are removed when the
// leadership ends.
func (l *Leadership) Informer(informer cache.SharedIndexInformer) cache.SharedIndexInformer {
	return leadershipInformer{informer, l}
}

// leadershipInformer removes its handlers when the leadership ends.
type leadershipInformer struct {
	cache.SharedIndexInformer
	leadership *Leadership
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
	i.leadership.OnEnd(func() { _ = i.RemoveEventHandler(registration) })
	return registration, nil
}

// CABundle returns the server's CA bundle for use in a leadership.
func (l *Leadership) CABundle(source CABundleSource) CABundleSource { return caBundle{source, l} }

// caBundle is the server's CA bundle, used in a leadership.
type caBundle struct {
	CABundleSource
	leadership *Leadership
}

// AddListener adds a listener for the leadership. The source cannot remove one: what
// stays registered there does nothing.
func (b caBundle) AddListener(listener func()) {
	var current atomic.Pointer[func()]
	current.Store(&listener)
	b.leadership.OnEnd(func() { current.Store(nil) })
	b.CABundleSource.AddListener(func() {
		if listener := current.Load(); listener != nil {
			(*listener)()
		}
	})
}
