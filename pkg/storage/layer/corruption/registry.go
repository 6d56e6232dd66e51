// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package corruption

import (
	"cmp"
	"maps"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/annex-dev/annex/pkg/observers"
)

// Object is an unreadable object.
type Object struct {
	// Namespace is empty for resources that have none.
	Namespace, Name string
	// Reason is the error of reading it.
	Reason string
}

// String returns namespace/name or name.
func (o Object) String() string {
	if o.Namespace == "" {
		return o.Name
	}
	return o.Namespace + "/" + o.Name
}

// Registry has the unreadable objects of all resources of a process.
type Registry struct {
	mu        sync.Mutex
	resources map[schema.GroupResource]map[*Detector]report
	handlers  observers.Set[func(schema.GroupResource)]
}

// report is the state of a Detector.
type report struct {
	objects []Object
	allRead bool
	failure string
}

// NewRegistry returns an empty Registry.
func NewRegistry() *Registry {
	registerMetrics()
	return &Registry{resources: map[schema.GroupResource]map[*Detector]report{}}
}

// Unreadable returns the unreadable objects of a resource, sorted.
func (r *Registry) Unreadable(resource schema.GroupResource) []Object {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.unreadable(resource)
}

func (r *Registry) unreadable(resource schema.GroupResource) []Object {
	// The versions of a resource report the same objects.
	byName := map[string]Object{}
	for _, report := range r.resources[resource] {
		for _, object := range report.objects {
			byName[object.String()] = object
		}
	}
	return slices.SortedFunc(maps.Values(byName), func(a, b Object) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
}

// AllRead reports whether all objects of a resource were read, so that those not in
// Unreadable are readable.
func (r *Registry) AllRead(resource schema.GroupResource) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, report := range r.resources[resource] {
		if report.allRead {
			return true
		}
	}
	return false
}

// Failure returns why all objects of a resource cannot be read in one of its versions, if not because of those
// in Unreadable. It is empty while they can be read.
func (r *Registry) Failure(resource schema.GroupResource) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var failures []string
	for _, report := range r.resources[resource] {
		if report.failure != "" {
			failures = append(failures, report.failure)
		}
	}
	if len(failures) == 0 {
		return ""
	}
	return slices.Min(failures)
}

// AddHandler registers a handler of changes until remove is called. It must not block.
func (r *Registry) AddHandler(handler func(schema.GroupResource)) (remove func()) {
	return r.handlers.Add(handler)
}

func (r *Registry) set(resource schema.GroupResource, from *Detector, found report) {
	r.change(resource, func(reports map[*Detector]report) { reports[from] = found })
}

func (r *Registry) forget(resource schema.GroupResource, from *Detector) {
	r.change(resource, func(reports map[*Detector]report) { delete(reports, from) })
}

func (r *Registry) change(resource schema.GroupResource, change func(map[*Detector]report)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.resources[resource] == nil {
		r.resources[resource] = map[*Detector]report{}
	}
	change(r.resources[resource])
	if len(r.resources[resource]) == 0 {
		delete(r.resources, resource)
	}
	if count := len(r.unreadable(resource)); count > 0 {
		unreadable.WithLabelValues(resource.String()).Set(float64(count))
	} else {
		unreadable.DeleteLabelValues(resource.String())
	}
	r.handlers.Notify(func(handler func(schema.GroupResource)) { handler(resource) })
}
