// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package watchcache

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"sync"
	"sync/atomic"
	"unsafe"
	"weak"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/cacher/store"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/annex-dev/annex/pkg/storage/layer/compression"
)

// Usage is the memory of a watch cache, in bytes, and what it holds.
type Usage struct {
	// Objects is the number of served objects.
	Objects int64
	// Bytes is the memory of these, and of objects that a cache has read before it replaces all.
	Bytes int64
	// History is the memory of objects that were replaced or deleted, which watches and reads of
	// earlier resource versions may need. It falls when the garbage collector has freed them.
	History int64
}

// Total returns all bytes.
func (u Usage) Total() int64 { return u.Bytes + u.History }

// Memory accounts for the memory of a watch cache of Objects, has them in order, and compresses them. Upstream's
// watch cache has no hook for that. It calls index functions for each object that it stores,
// replaces or deletes; only when it replaces all objects does it not call them for the previous
// ones.
type Memory struct {
	keyFunc    func(apiruntime.Object) (string, error)
	dictionary func() *compression.Dictionary
	notify     func(change int64)
	// contents locks before mu.
	contents *contents

	// compress is set while new objects are to be compressed.
	compress atomic.Bool

	mu    sync.Mutex
	usage Usage
	// filling is the part of usage.Bytes that is not stored yet, and indexed the part of indexes of
	// labels.
	filling, indexed int64
	// generation counts how often all objects were replaced. Records have the one in which they
	// were stored.
	generation uint32
	closed     bool
	// converted is the last conversion by SetCompressed.
	converted conversion
}

// conversion is the compression of all objects of a generation, or their decompression without a dictionary.
type conversion struct {
	generation uint32
	dictionary *compression.Dictionary
}

// removed is the generation of records that were replaced or deleted.
const removed = math.MaxUint32

// NewMemory returns the Memory of a watch cache of objects with keys from keyFunc. dictionary returns what to compress
// objects with. notify is called with each change of the total usage, and must not block.
func NewMemory(resource *Resource, keyFunc func(apiruntime.Object) (string, error), dictionary func() *compression.Dictionary, notify func(change int64)) *Memory {
	m := &Memory{keyFunc: keyFunc, dictionary: dictionary, notify: notify, generation: 1}
	m.contents = newContents(resource.selectable, m.accountIndexes)
	return m
}

// Compress sets whether new objects are compressed.
func (m *Memory) Compress(compress bool) { m.compress.Store(compress) }

// Usage returns the current usage.
func (m *Memory) Usage() Usage {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.usage
}

// Close ends the accounting. The watch cache has ended.
func (m *Memory) Close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.notify(-m.usage.Total())
	m.usage, m.closed = Usage{}, true
}

// change changes the usage. It requires m.mu.
func (m *Memory) change(objects, bytes, history int64) {
	if m.closed {
		return
	}
	m.usage.Objects += objects
	m.usage.Bytes += bytes
	m.usage.History += history
	m.notify(bytes + history)
}

// Key is the key function of the watch cache.
func (m *Memory) Key(obj apiruntime.Object) (string, error) {
	if object, ok := obj.(*Object); ok && object.record != nil && object.key != "" {
		return object.key, nil
	}
	return m.keyFunc(obj)
}

// Indexers returns the index function of the watch cache, for the accounting. It returns no values.
func (m *Memory) Indexers() *toolscache.Indexers { return &toolscache.Indexers{"accounting": m.index} }

// index is called with each object when it is stored, and again when it is replaced or deleted.
func (m *Memory) index(obj any) ([]string, error) {
	object, ok := obj.(*Object)
	if !ok || object.record == nil {
		return nil, nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	switch r := object.record; r.generation {
	case 0:
		r.generation = m.generation
		m.change(1, r.size(), 0)
	case m.generation:
		m.change(-1, -r.size(), 0)
		m.keepInHistory(r)
	}
	return nil, nil
}

// keepInHistory accounts for a record until it is freed. It requires m.mu.
func (m *Memory) keepInHistory(r *record) {
	r.generation = removed
	size := r.size()
	m.change(0, 0, size)
	// The cleanup must not keep the record, and the functions of m may reach the watch cache.
	cache := weak.Make(m)
	runtime.AddCleanup(r, func(size int64) {
		if m := cache.Value(); m != nil {
			m.mu.Lock()
			defer m.mu.Unlock()
			m.change(0, 0, -size)
		}
	}, size)
}

// accountIndexes accounts for the indexes of labels.
func (m *Memory) accountIndexes(records int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if bytes := int64(records) * indexSize; bytes != m.indexed && !m.closed {
		m.change(0, bytes-m.indexed, 0)
		m.indexed = bytes
	}
}

// Source returns storage for the watch cache to read from. failed is called with the errors of watches.
func (m *Memory) Source(etcd storage.Interface, failed func(error)) storage.Interface {
	return &source{Interface: etcd, cache: m, failed: failed}
}

type source struct {
	storage.Interface
	cache  *Memory
	failed func(error)
	// read receives the pages of a list, one after the other.
	read *version
}

// GetList implements storage.Interface. The watch cache lists all objects in pages, and then
// replaces those that it has.
func (s *source) GetList(ctx context.Context, key string, options storage.ListOptions, out apiruntime.Object) error {
	if err := s.Interface.GetList(ctx, key, options, out); err != nil {
		return err
	}
	list, ok := out.(*List)
	if !ok {
		return fmt.Errorf("list into a %T: only a List is supported", out)
	}
	if options.Predicate.Continue == "" {
		s.read = s.cache.restartFilling()
	}
	for i := range list.Items {
		if err := s.cache.add(&list.Items[i], s.read); err != nil {
			return err
		}
	}
	if list.Continue == "" {
		revision, err := s.Versioner().ParseResourceVersion(list.ResourceVersion)
		if err != nil {
			return err
		}
		s.cache.replace(s.read, revision)
	}
	return nil
}

// Watch implements storage.Interface.
func (s *source) Watch(ctx context.Context, key string, options storage.ListOptions) (watch.Interface, error) {
	events, err := s.Interface.Watch(ctx, key, options)
	if err != nil {
		return nil, err
	}
	var read *version // while all objects are read
	if options.SendInitialEvents != nil && *options.SendInitialEvents {
		read = s.cache.restartFilling()
	}
	return Forward(events, func(event watch.Event) (watch.Event, bool) {
		obj := event.Object
		if timed, ok := obj.(storage.WatchEventWithRecordTime); ok {
			obj = timed.Unwrap()
		}
		object, ok := obj.(*Object)
		switch {
		case event.Type == watch.Error:
			s.failed(apierrors.FromObject(event.Object))
		case !ok:
		case event.Type == watch.Bookmark:
			if isEnd, err := storage.HasInitialEventsEndBookmarkAnnotation(object); read != nil && err == nil && isEnd {
				s.cache.replace(read, s.revisionOf(object))
				read = nil
			}
			if read == nil {
				s.cache.contents.bookmark(s.revisionOf(object))
			}
		case event.Type == watch.Deleted:
			s.cache.addDeleted(object, read)
		default:
			// The watch cache reports an object without a key.
			_ = s.cache.add(object, read)
		}
		return event, true
	}), nil
}

// revisionOf returns the resource version of a bookmark, or 0.
func (s *source) revisionOf(object *Object) uint64 {
	revision, _ := s.Versioner().ObjectResourceVersion(object)
	return revision
}

// add prepares an object that the watch cache is about to read: one of all, or with nil an event.
func (m *Memory) add(object *Object, read *version) (err error) {
	r := object.record
	if r.key, err = m.keyFunc(object); err != nil {
		return err
	}
	if m.compress.Load() {
		if err := r.compress(m.dictionary()); err != nil {
			return err
		}
	}
	m.contents.put(r, read)
	if read == nil {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.filling += r.size()
	m.change(0, r.size(), 0)
	return nil
}

// addDeleted accounts for an object whose deletion the watch cache is about to read. It is kept
// in the history, beside the object that was deleted.
func (m *Memory) addDeleted(object *Object, read *version) {
	key, err := m.keyFunc(object)
	if err != nil {
		m.contents.invalidate()
		return
	}
	m.contents.remove(key, object.revision, read)
	if m.compress.Load() {
		// Otherwise it stays as it is.
		_ = object.compress(m.dictionary())
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.keepInHistory(object.record)
}

// restartFilling drops what was read and not stored.
func (m *Memory) restartFilling() *version {
	m.mu.Lock()
	m.change(0, -m.filling, 0)
	m.filling = 0
	m.mu.Unlock()
	return m.contents.restart()
}

// replace drops all objects: the watch cache is about to replace them by those that it has read,
// as of a resource version.
func (m *Memory) replace(read *version, revision uint64) {
	m.mu.Lock()
	m.change(-m.usage.Objects, -m.usage.Bytes, 0)
	m.filling, m.indexed = 0, 0
	m.generation++
	m.mu.Unlock()
	m.contents.filled(read, revision)
}

// Sizes of what a watch cache has of each object, besides texts: upstream's element, its places
// in the B-tree and in upstream's map of the sizes of values in etcd, a set of up to eight labels,
// and its place in an index, in bytes of the heap.
const (
	elementSize = int64(unsafe.Sizeof(store.Element{}) + unsafe.Sizeof(Object{}))
	placeSize   = 96
	setSize     = 336
	indexSize   = 11
	recordSize  = int64(unsafe.Sizeof(record{}) + unsafe.Sizeof(text{}))
)

// size returns the memory of a stored record.
func (r *record) size() int64 {
	texts := int64(len(r.text.Load().data) + 2*len(r.key))
	// The heap has sizes in steps of about an eighth.
	return recordSize + elementSize + placeSize + int64(r.ownSets)*setSize + int64(1+len(r.resource.selectable))*indexSize + texts + texts/16
}

// compress compresses a record that is not shared yet.
func (r *record) compress(dictionary *compression.Dictionary) error {
	return r.convert(dictionary, func(t *text) { r.text.Store(t) })
}

// convert calls replace with the text for a dictionary, or with a plain one if that is nil. It
// does not if the text has that form.
func (r *record) convert(dictionary *compression.Dictionary, replace func(*text)) error {
	if r.text.Load().dictionary.Is(dictionary) {
		return nil
	}
	json, err := r.json()
	if err != nil {
		return err
	}
	converted, err := newText(json, dictionary)
	if err != nil {
		return err
	}
	replace(converted)
	return nil
}

// errFilling means that the objects that were read before a change are converted later.
var errFilling = errors.New("the watch cache is being filled")

// SetCompressed compresses all objects and new ones, or decompresses them. cached is the watch
// cache. Nothing changes for its clients. It must not be called concurrently.
func (m *Memory) SetCompressed(ctx context.Context, compress bool, cached storage.Interface, prefix string) error {
	m.compress.Store(compress)
	var dictionary *compression.Dictionary
	if compress {
		dictionary = m.dictionary()
	}
	m.mu.Lock()
	to := conversion{m.generation, dictionary}
	done := m.converted.dictionary.Is(dictionary) && (m.converted.generation == to.generation || !compress)
	if !done && compress {
		m.converted = conversion{dictionary: dictionary} // of no generation: it has begun
	}
	empty, filling := m.usage.Objects == 0, m.filling > 0
	m.mu.Unlock()
	switch {
	case done:
		return nil
	case empty && filling:
		return errFilling
	case empty: // a read may wait until the cache is filled
		return nil
	}
	var list List
	options := storage.ListOptions{ResourceVersion: "0", Predicate: storage.Everything, Recursive: true}
	if err := cached.GetList(ctx, prefix, options, &list); err != nil {
		return fmt.Errorf("list the cached objects: %w", err)
	}
	for i := range list.Items {
		if err := ctx.Err(); err != nil {
			return err
		}
		r := list.Items[i].record
		if err := r.convert(dictionary, func(converted *text) { m.replaceText(r, converted) }); err != nil {
			return err
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.converted = to
	return nil
}

// replaceText replaces the text of a record that is stored.
func (m *Memory) replaceText(r *record, converted *text) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if r.generation != m.generation {
		return
	}
	before := r.size()
	r.text.Store(converted)
	m.change(0, r.size()-before, 0)
}
