// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package front

import (
	"net/http"
	"sync"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/waitgroup"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/server/filters"
)

// drainTimeout is twice the timeout of requests, as in upstream's handler of custom resources.
const drainTimeout = 2 * time.Minute

// Entry is an endpoint in a Registry, with the requests that use it.
type Entry[E any] struct {
	// definition is the definition that the storage was created for.
	definition *apiextensionsv1.CustomResourceDefinition
	endpoint   func() E
	requests   waitgroup.SafeWaitGroup

	mu sync.Mutex
	// checked is the definition of the last request that was compared, and current the result.
	checked *apiextensionsv1.CustomResourceDefinition
	current bool
}

// Endpoint returns the endpoint. The first call creates it.
func (e *Entry[E]) Endpoint() E { return e.endpoint() }

// Wait makes removing the storage wait for the requests of a handler, except watches.
func (e *Entry[E]) Wait(handler http.Handler) http.Handler {
	return filters.WithWaitGroup(handler, isWatch, &e.requests)
}

func isWatch(_ *http.Request, info *request.RequestInfo) bool { return info.Verb == "watch" }

// drain waits for the requests that use the storage. It does not wait forever for clients that
// do not read their responses.
func (e *Entry[E]) drain() {
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

// isCurrent compares what upstream compares before it replaces the storage of a definition. The
// generation changes with the spec.
func (e *Entry[E]) isCurrent(definition *apiextensionsv1.CustomResourceDefinition) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.checked != definition {
		e.checked = definition
		e.current = e.definition.UID == definition.UID &&
			e.definition.Generation == definition.Generation &&
			equality.Semantic.DeepEqual(&e.definition.Status.AcceptedNames, &definition.Status.AcceptedNames)
	}
	return e.current
}
