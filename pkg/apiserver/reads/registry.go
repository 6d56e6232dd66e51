// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package reads

import (
	"sync"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/waitgroup"

	"github.com/annex-dev/annex/pkg/storage/watchcache"
)

// drainTimeout is twice the timeout of requests, as in upstream's handler of custom resources.
const drainTimeout = 2 * time.Minute

// Registry has the storage of the custom resources that this package serves.
type Registry struct {
	minRequestTimeout time.Duration

	mu       sync.RWMutex
	versions map[version]*entry
}

// version is a served version of a definition.
type version struct{ definition, name string }

// entry is an Endpoint with what requests need.
type entry struct {
	watchcache.Endpoint
	requests waitgroup.SafeWaitGroup
	// endpoint is created by the first request.
	endpoint func() *endpoint

	mu sync.Mutex
	// checked is the definition of the last request that was compared, and current the result.
	checked *apiextensionsv1.CustomResourceDefinition
	current bool
}

// NewRegistry returns an empty Registry. minRequestTimeout is the minimum duration of watches.
func NewRegistry(minRequestTimeout time.Duration) *Registry {
	return &Registry{minRequestTimeout: minRequestTimeout, versions: map[version]*entry{}}
}

// Add adds storage. The caller calls remove before it closes the storage: remove waits for the
// requests that use it, except watches.
func (r *Registry) Add(added watchcache.Endpoint) (remove func()) {
	key := version{added.Definition.Name, added.Resource.Kind.Version}
	e := &entry{Endpoint: added}
	e.endpoint = sync.OnceValue(func() *endpoint { return newEndpoint(added, r.minRequestTimeout) })
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

// drain waits for the requests that use the storage. It does not wait forever for clients that
// do not read their responses.
func (e *entry) drain() {
	drained := make(chan struct{})
	go func() {
		e.requests.Wait()
		close(drained)
	}()
	select {
	case <-drained:
	case <-time.After(drainTimeout):
	}
}

// find returns the storage of a version, if it was created for the definition as it is now.
func (r *Registry) find(definition *apiextensionsv1.CustomResourceDefinition, name string) *entry {
	r.mu.RLock()
	e := r.versions[version{definition.Name, name}]
	r.mu.RUnlock()
	if e == nil || !e.isCurrent(definition) {
		return nil
	}
	return e
}

// isCurrent compares what upstream compares before it replaces the storage of a definition. The
// generation changes with the spec.
func (e *entry) isCurrent(definition *apiextensionsv1.CustomResourceDefinition) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.checked != definition {
		e.checked = definition
		e.current = e.Definition.UID == definition.UID &&
			e.Definition.Generation == definition.Generation &&
			equality.Semantic.DeepEqual(&e.Definition.Status.AcceptedNames, &definition.Status.AcceptedNames)
	}
	return e.current
}
