// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package crd

import (
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	crdinformers "k8s.io/apiextensions-apiserver/pkg/client/informers/externalversions/apiextensions/v1"
	crdlisters "k8s.io/apiextensions-apiserver/pkg/client/listers/apiextensions/v1"
	"k8s.io/client-go/tools/cache"
)

// Whole returns an informer for consumers that need schemas. Its lister gets whole definitions.
// Listed definitions, and those in events, have schemas only while these are in use elsewhere.
// With has, which may be nil, it sends only events of definitions for which has is true.
func (i *Informer) Whole(has func(outline *apiextensionsv1.CustomResourceDefinition) bool) crdinformers.CustomResourceDefinitionInformer {
	return whole{i, has}
}

type whole struct {
	of  *Informer
	has func(outline *definition) bool
}

// Informer implements crdinformers.CustomResourceDefinitionInformer.
func (w whole) Informer() cache.SharedIndexInformer { return wholeEvents{w.of.outlines, w} }

// Lister implements crdinformers.CustomResourceDefinitionInformer.
func (w whole) Lister() crdlisters.CustomResourceDefinitionLister {
	return wholeLister{crdlisters.NewCustomResourceDefinitionLister(w.of.outlines.GetIndexer()), w.of}
}

// wholeLister gets whole definitions.
type wholeLister struct {
	crdlisters.CustomResourceDefinitionLister
	of *Informer
}

// Get implements crdlisters.CustomResourceDefinitionLister.
func (l wholeLister) Get(name string) (*apiextensionsv1.CustomResourceDefinition, error) {
	outline, err := l.CustomResourceDefinitionLister.Get(name)
	if err != nil {
		return nil, err
	}
	return l.of.WithSchemas(outline)
}

// wholeEvents sends events of whole definitions.
type wholeEvents struct {
	cache.SharedIndexInformer
	whole
}

// AddEventHandler implements cache.SharedInformer.
func (e wholeEvents) AddEventHandler(handler cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error) {
	return e.SharedIndexInformer.AddEventHandler(e.wrap(handler))
}

// AddEventHandlerWithResyncPeriod implements cache.SharedInformer.
func (e wholeEvents) AddEventHandlerWithResyncPeriod(handler cache.ResourceEventHandler, resync time.Duration) (cache.ResourceEventHandlerRegistration, error) {
	return e.SharedIndexInformer.AddEventHandlerWithResyncPeriod(e.wrap(handler), resync)
}

// AddEventHandlerWithOptions implements cache.SharedInformer.
func (e wholeEvents) AddEventHandlerWithOptions(handler cache.ResourceEventHandler, options cache.HandlerOptions) (cache.ResourceEventHandlerRegistration, error) {
	return e.SharedIndexInformer.AddEventHandlerWithOptions(e.wrap(handler), options)
}

func (e wholeEvents) wrap(handler cache.ResourceEventHandler) cache.ResourceEventHandler {
	handler = wholeHandler{handler, e.of}
	if e.has == nil {
		return handler
	}
	return cache.FilteringResourceEventHandler{Handler: handler, FilterFunc: func(obj any) bool {
		if tombstone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
			obj = tombstone.Obj
		}
		outline, ok := obj.(*definition)
		return ok && e.has(outline)
	}}
}

type wholeHandler struct {
	next cache.ResourceEventHandler
	of   *Informer
}

// OnAdd implements cache.ResourceEventHandler.
func (h wholeHandler) OnAdd(obj any, initial bool) { h.next.OnAdd(h.whole(obj), initial) }

// OnUpdate implements cache.ResourceEventHandler.
func (h wholeHandler) OnUpdate(old, updated any) { h.next.OnUpdate(h.whole(old), h.whole(updated)) }

// OnDelete implements cache.ResourceEventHandler.
func (h wholeHandler) OnDelete(obj any) { h.next.OnDelete(obj) }

func (h wholeHandler) whole(obj any) any {
	if outline, ok := obj.(*definition); ok {
		return h.of.ifInUse(outline)
	}
	return obj
}
