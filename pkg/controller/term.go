// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"sync/atomic"
	"time"

	apiextensionsinformers "k8s.io/apiextensions-apiserver/pkg/client/informers/externalversions"
	"k8s.io/client-go/tools/cache"
	aggregatorinformers "k8s.io/kube-aggregator/pkg/client/informers/externalversions"

	"github.com/annex-dev/annex/pkg/scheduler"
)

// term remembers what controllers registered with things that outlive them. It is
// used by one goroutine at a time.
type term struct {
	undo []func()
}

// end takes everything back.
func (t *term) end() {
	for _, undo := range t.undo {
		undo()
	}
	t.undo = nil
}

// forTerm returns the Config of one term: with informers of its own, and with
// those that outlive it wrapped so that the term knows what was registered.
func (c Config) forTerm(t *term) Config {
	c.term = t
	c.AnnexHostedResourceInformer = typedInTerm(c.AnnexHostedResourceInformer, t)
	c.AnnexStoreInformer = typedInTerm(c.AnnexStoreInformer, t)
	c.AnnexDefinitionInformer = typedInTerm(c.AnnexDefinitionInformer, t)
	if c.AnnexNamespaceInformer != nil {
		c.AnnexNamespaceInformer = typedInTerm(c.AnnexNamespaceInformer, t)
	}
	if c.RootCA != nil {
		c.RootCA = caBundle{c.RootCA, t}
	}
	eventsClient := c.AnnexKube
	if c.Main != nil {
		eventsClient = c.Main.Kube
		main := *c.Main
		main.APIExtensionsInformers = apiextensionsinformers.NewSharedInformerFactory(main.APIExtensions, informerResync)
		main.APIRegistrationInformers = aggregatorinformers.NewSharedInformerFactory(main.APIRegistration, informerResync)
		main.CABundle = caBundle{main.CABundle, t}
		c.Main = &main
	}
	c.events = scheduler.NewEventBroadcaster(eventsClient.EventsV1())
	t.undo = append(t.undo, c.events.Shutdown)
	return c
}

// startInformers starts the term's informers, which are those of the main cluster, and
// returns what waits for them to stop after ctx is done.
func (c Config) startInformers(ctx context.Context) (wait func()) {
	if c.Main == nil {
		return func() {}
	}
	c.Main.APIExtensionsInformers.StartWithContext(ctx)
	c.Main.APIRegistrationInformers.StartWithContext(ctx)
	return func() {
		c.Main.APIExtensionsInformers.Shutdown()
		c.Main.APIRegistrationInformers.Shutdown()
	}
}

// typedInformer is an informer of one kind with its lister L, as they are generated.
type typedInformer[L any] interface {
	Informer() cache.SharedIndexInformer
	Lister() L
}

// typedTermInformer is one of the server's informers, used in a term.
type typedTermInformer[L any] struct {
	typedInformer[L]
	term *term
}

func typedInTerm[L any](informer typedInformer[L], t *term) typedTermInformer[L] {
	return typedTermInformer[L]{informer, t}
}

// Informer has handlers removed when the term ends.
func (i typedTermInformer[L]) Informer() cache.SharedIndexInformer {
	return termInformer{i.typedInformer.Informer(), i.term}
}

// termInformer removes what was added to it when the term ends.
type termInformer struct {
	cache.SharedIndexInformer
	term *term
}

// AddEventHandler adds a handler for the term.
func (i termInformer) AddEventHandler(handler cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error) {
	return i.AddEventHandlerWithOptions(handler, cache.HandlerOptions{})
}

// AddEventHandlerWithResyncPeriod adds a handler for the term.
func (i termInformer) AddEventHandlerWithResyncPeriod(handler cache.ResourceEventHandler, resyncPeriod time.Duration) (cache.ResourceEventHandlerRegistration, error) {
	return i.AddEventHandlerWithOptions(handler, cache.HandlerOptions{ResyncPeriod: &resyncPeriod})
}

// AddEventHandlerWithOptions adds a handler for the term.
func (i termInformer) AddEventHandlerWithOptions(handler cache.ResourceEventHandler, options cache.HandlerOptions) (cache.ResourceEventHandlerRegistration, error) {
	registration, err := i.SharedIndexInformer.AddEventHandlerWithOptions(handler, options)
	if err != nil {
		return nil, err
	}
	i.term.undo = append(i.term.undo, func() {
		// Removing fails only where nothing is left to remove.
		_ = i.RemoveEventHandler(registration)
	})
	return registration, nil
}

// caBundle is the server's CA bundle, used in a term.
type caBundle struct {
	CABundleSource
	term *term
}

// AddListener adds a listener for the term. The source has no way to remove one:
// what stays there after the term leads nowhere.
func (b caBundle) AddListener(listener func()) {
	var current atomic.Pointer[func()]
	current.Store(&listener)
	b.term.undo = append(b.term.undo, func() { current.Store(nil) })
	b.CABundleSource.AddListener(func() {
		if listener := current.Load(); listener != nil {
			(*listener)()
		}
	})
}
