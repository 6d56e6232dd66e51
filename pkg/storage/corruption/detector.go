// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

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

// defaultInterval is how often a list that is known to fail is tried in full.
const defaultInterval = 10 * time.Second

// Config is the resource whose objects are looked after.
type Config struct {
	Resource schema.GroupResource
	// Prefix is that of the Store's keys in etcd, and ResourcePrefix that of the
	// resource's keys below it.
	Prefix, ResourcePrefix string
	// Codec is what values are decoded with.
	Codec runtime.Codec
	// New returns an empty object.
	New func() runtime.Object
	// Registry is told what cannot be read; nil where nobody asks.
	Registry *Registry
	// Interval replaces defaultInterval when positive.
	Interval time.Duration
}

// Detector notes which objects of a resource cannot be read. Its Transformer, Codec,
// Decoder and Storage have to be used together.
type Detector struct {
	config Config

	mu sync.Mutex
	// unreadable has the reasons, by the keys of the storage.
	unreadable map[string]string
	// failed is when a list failed last.
	failed  time.Time
	allRead bool // whether all objects were read at some time
	closed  bool
}

// New returns a Detector that knows of nothing. It has to be closed.
func New(config Config) *Detector {
	if config.Interval <= 0 {
		config.Interval = defaultInterval
	}
	if config.Registry == nil {
		config.Registry = NewRegistry()
	}
	return &Detector{config: config, unreadable: map[string]string{}}
}

// Close withdraws what was reported.
func (d *Detector) Close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closed = true
	d.config.Registry.forget(d.config.Resource, d)
}

// normalized is a key as the storage is asked for it, in one spelling.
func normalized(key string) string { return "/" + strings.Trim(key, "/") }

// fromEtcd is the key of the storage for one in etcd.
func (d *Detector) fromEtcd(key string) string {
	root := strings.TrimSuffix(path.Join("/", d.config.Prefix), "/")
	return normalized(strings.TrimPrefix(key, root))
}

// object is what people call a key.
func (d *Detector) object(key, reason string) Object {
	name := strings.TrimPrefix(key, path.Join("/", d.config.ResourcePrefix)+"/")
	namespace, inNamespace, namespaced := strings.Cut(name, "/")
	if !namespaced {
		return Object{Name: name, Reason: reason}
	}
	return Object{Namespace: namespace, Name: inNamespace, Reason: reason}
}

// below returns the keys at or below a key that are known to be unreadable, in order.
func (d *Detector) below(key string) []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	key = normalized(key)
	return slices.DeleteFunc(slices.Sorted(maps.Keys(d.unreadable)), func(known string) bool {
		return known != key && !strings.HasPrefix(known, strings.TrimSuffix(key, "/")+"/")
	})
}

// note replaces what is known of the keys that replaced reports.
func (d *Detector) note(ctx context.Context, found map[string]string, replaced func(key string) bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	before := maps.Clone(d.unreadable)
	maps.DeleteFunc(d.unreadable, func(key, _ string) bool { return replaced(key) })
	maps.Copy(d.unreadable, found)
	for key, reason := range found {
		if _, known := before[key]; !known {
			klog.FromContext(ctx).Error(nil, "An object cannot be read", "resource", d.config.Resource,
				"object", d.object(key, "").String(), "key", path.Join("/", d.config.Prefix, key), "reason", reason)
		}
	}
	if !maps.Equal(before, d.unreadable) {
		d.report()
	}
}

// forget notes that a key can be read, or is gone.
func (d *Detector) forget(ctx context.Context, key string) {
	d.note(ctx, nil, func(known string) bool { return known == normalized(key) })
}

// NoteAllRead notes that all objects were read. What is not known to be unreadable can be
// read.
func (d *Detector) NoteAllRead() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.allRead {
		d.allRead = true
		d.report()
	}
}

// report tells the registry what there is. The lock has to be held, so that what is
// told last is what was last.
func (d *Detector) report() {
	if d.closed {
		return
	}
	objects := make([]Object, 0, len(d.unreadable))
	for key, reason := range d.unreadable {
		objects = append(objects, d.object(key, reason))
	}
	d.config.Registry.set(d.config.Resource, d, report{objects: objects, allRead: d.allRead})
}

// objects are keys as people see them.
func (d *Detector) objects(keys []string) []Object {
	d.mu.Lock()
	defer d.mu.Unlock()
	objects := make([]Object, 0, len(keys))
	for _, key := range keys {
		objects = append(objects, d.object(key, d.unreadable[key]))
	}
	return objects
}
