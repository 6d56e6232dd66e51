// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package corruption detects objects that cannot be read, and names them.
//
// As in Kubernetes, lists of a resource with such an object fail and watches end with an
// error. Omitting the object would make clients treat it as deleted. In addition, the error
// names the objects, they are counted, and errors of a key service, a conversion webhook or
// etcd do not count as damage of the object.
package corruption

import (
	"context"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/klog/v2"
)

// defaultInterval is the minimum time between full attempts of a failing list.
const defaultInterval = 10 * time.Second

// Config configures a Detector.
type Config struct {
	Resource schema.GroupResource
	// Prefix begins the Store's keys, and ResourcePrefix the resource's keys below it.
	Prefix, ResourcePrefix string
	// Codec decodes values.
	Codec runtime.Codec
	// New returns an empty object.
	New func() runtime.Object
	// Registry receives the unreadable objects. It may be nil.
	Registry *Registry
	// Interval replaces defaultInterval when positive.
	Interval time.Duration
}

// Detector records the unreadable objects of a resource. Its Transformer, Codec, Decoder and
// Storage must be used together.
type Detector struct {
	config Config

	mu sync.Mutex
	// unreadable has reasons by storage key.
	unreadable map[string]string
	// failed is the time of the last failed list.
	failed  time.Time
	allRead bool // all objects were read once
	// failure is the first error of reading all objects since they were last read, unless it is due to
	// objects.
	failure string
	closed  bool
}

// New returns a Detector, which must be closed.
func New(config Config) *Detector {
	if config.Interval <= 0 {
		config.Interval = defaultInterval
	}
	if config.Registry == nil {
		config.Registry = NewRegistry()
	}
	return &Detector{config: config, unreadable: map[string]string{}}
}

// Close removes what was reported to the Registry.
func (d *Detector) Close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closed = true
	d.config.Registry.forget(d.config.Resource, d)
}

// normalized returns a storage key in canonical form.
func normalized(key string) string { return "/" + strings.Trim(key, "/") }

// fromEtcd returns the storage key of a key in etcd.
func (d *Detector) fromEtcd(key string) string {
	root := strings.TrimSuffix(path.Join("/", d.config.Prefix), "/")
	return normalized(strings.TrimPrefix(key, root))
}

// object returns the object of a storage key.
func (d *Detector) object(key, reason string) Object {
	name := strings.TrimPrefix(key, path.Join("/", d.config.ResourcePrefix)+"/")
	namespace, inNamespace, namespaced := strings.Cut(name, "/")
	if !namespaced {
		return Object{Name: name, Reason: reason}
	}
	return Object{Namespace: namespace, Name: inNamespace, Reason: reason}
}

// below returns the unreadable keys at or below a key, sorted.
func (d *Detector) below(key string) []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	key = normalized(key)
	return slices.DeleteFunc(slices.Sorted(maps.Keys(d.unreadable)), func(known string) bool {
		return known != key && !strings.HasPrefix(known, strings.TrimSuffix(key, "/")+"/")
	})
}

// record adds the reasons of unreadable keys.
func (d *Detector) record(ctx context.Context, found map[string]string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	changed := false
	for key, reason := range found {
		before, known := d.unreadable[key]
		if !known {
			klog.FromContext(ctx).Error(nil, "An object cannot be read", "resource", d.config.Resource,
				"object", d.object(key, "").String(), "key", path.Join("/", d.config.Prefix, key), "reason", reason)
		}
		changed = changed || !known || before != reason
		d.unreadable[key] = reason
	}
	if changed {
		d.report()
	}
}

// forget removes a key that can be read or was deleted.
func (d *Detector) forget(key string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, known := d.unreadable[normalized(key)]; known {
		delete(d.unreadable, normalized(key))
		d.report()
	}
}

// NoteAllRead records that all objects were read, so that the others are readable.
func (d *Detector) NoteAllRead() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.allRead || d.failure != "" {
		d.allRead, d.failure = true, ""
		d.report()
	}
}

// NoteFailure records that all objects could not be read, for another reason than an unreadable one.
func (d *Detector) NoteFailure(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.failure != "" {
		return
	}
	d.failure = err.Error()
	if version := d.config.New().GetObjectKind().GroupVersionKind().Version; version != "" {
		d.failure = version + ": " + d.failure
	}
	d.report()
}

// report updates the Registry. It requires d.mu, which keeps the updates in order.
func (d *Detector) report() {
	if d.closed {
		return
	}
	objects := make([]Object, 0, len(d.unreadable))
	for key, reason := range d.unreadable {
		objects = append(objects, d.object(key, reason))
	}
	d.config.Registry.set(d.config.Resource, d, report{objects: objects, allRead: d.allRead, failure: d.failure})
}

// objects returns the objects of keys.
func (d *Detector) objects(keys []string) []Object {
	d.mu.Lock()
	defer d.mu.Unlock()
	objects := make([]Object, 0, len(keys))
	for _, key := range keys {
		objects = append(objects, d.object(key, d.unreadable[key]))
	}
	return objects
}
