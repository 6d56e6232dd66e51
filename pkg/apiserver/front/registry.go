// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package front

import (
	"sync"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"github.com/annex-dev/annex/pkg/storage/watchcache"
)

// Registry has an endpoint of type E for each version of a custom resource that has storage.
type Registry[E any] struct {
	newEndpoint func(watchcache.Endpoint) E

	mu       sync.RWMutex
	versions map[version]*Entry[E]
}

// version is a served version of a definition.
type version struct{ definition, name string }

// NewRegistry returns an empty Registry. It calls newEndpoint at the first request for storage.
func NewRegistry[E any](newEndpoint func(watchcache.Endpoint) E) *Registry[E] {
	return &Registry[E]{newEndpoint: newEndpoint, versions: map[version]*Entry[E]{}}
}

// Add adds storage. The caller calls remove before it closes the storage: remove waits for the
// requests that use it, except watches.
func (r *Registry[E]) Add(added watchcache.Endpoint) (remove func()) {
	key := version{added.Definition.Name, added.Resource.Kind.Version}
	e := &Entry[E]{definition: added.Definition}
	e.endpoint = sync.OnceValue(func() E { return r.newEndpoint(added) })
	r.mu.Lock()
	defer r.mu.Unlock()
	r.versions[key] = e
	return func() {
		r.mu.Lock()
		if r.versions[key] == e {
			delete(r.versions, key)
		}
		r.mu.Unlock()
		e.drain()
	}
}

// Find returns the entry of a version, or nil if there is none that was created for the definition
// as it is now.
func (r *Registry[E]) Find(definition *apiextensionsv1.CustomResourceDefinition, name string) *Entry[E] {
	r.mu.RLock()
	e := r.versions[version{definition.Name, name}]
	r.mu.RUnlock()
	if e == nil || !e.isCurrent(definition) {
		return nil
	}
	return e
}
