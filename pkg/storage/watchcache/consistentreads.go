// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package watchcache

import (
	"context"
	"path"
	"slices"
	"strconv"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/storage"
)

const (
	nameField      = "metadata.name"
	namespaceField = "metadata.namespace"
)

// ConsistentReads wraps a watch cache of Objects over etcd, whose client is kv and whose keys begin with prefix.
//
// A consistent read requests only the revision of the key from etcd: if the cache has that revision it has the
// object, because a key never has two values of one revision.
//
// Selectors of names are evaluated in front of the cache, because a set of fields for each object would take about
// 300 bytes. The name of a key never changes, so the types of events do not depend on it.
func ConsistentReads(cached, etcd storage.Interface, kv clientv3.KV, prefix string) storage.Interface {
	return &consistentReads{Interface: cached, etcd: etcd, kv: kv, prefix: path.Join("/", prefix) + "/"}
}

type consistentReads struct {
	storage.Interface
	etcd   storage.Interface
	kv     clientv3.KV
	prefix string
}

// Get implements storage.Interface.
func (s *consistentReads) Get(ctx context.Context, key string, options storage.GetOptions, out runtime.Object) error {
	if into, ok := out.(*Object); ok && options.ResourceVersion == "" && s.ReadinessCheck() == nil {
		cached := Object{}
		err := s.Interface.Get(ctx, key, storage.GetOptions{ResourceVersion: "0"}, &cached)
		if err == nil && s.isCurrent(ctx, key, cached.GetResourceVersion()) {
			*into = cached
			return nil
		}
	}
	return s.Interface.Get(ctx, key, options, out)
}

// isCurrent reports whether the object in etcd has a resource version.
func (s *consistentReads) isCurrent(ctx context.Context, key, version string) bool {
	found, err := s.kv.Get(ctx, s.prefix+strings.TrimPrefix(key, "/"), clientv3.WithKeysOnly())
	return err == nil && len(found.Kvs) == 1 && strconv.FormatInt(found.Kvs[0].ModRevision, 10) == version
}

// Watch implements storage.Interface. The context of the cache's watch has no name, because upstream's watch cache
// sends to a watch with a name only events with that field.
func (s *consistentReads) Watch(ctx context.Context, key string, options storage.ListOptions) (watch.Interface, error) {
	names, others := split(options.Predicate.Field)
	if len(names) == 0 {
		return s.Interface.Watch(ctx, key, options)
	}
	options.Predicate.Field = others
	events, err := s.Interface.Watch(withoutName(ctx), key, options)
	if err != nil || isKey(names, options.Recursive) {
		return events, err
	}
	return Forward(events, func(event watch.Event) (watch.Event, bool) {
		if event.Type == watch.Bookmark || event.Type == watch.Error {
			return event, true
		}
		object, err := meta.Accessor(event.Object)
		return event, err != nil || match(names, object.GetName())
	}), nil
}

// GetList implements storage.Interface.
func (s *consistentReads) GetList(ctx context.Context, key string, options storage.ListOptions, out runtime.Object) error {
	names, others := split(options.Predicate.Field)
	list, ok := out.(*List)
	single := isKey(names, options.Recursive)
	switch {
	case len(names) == 0 || !ok:
		return s.Interface.GetList(ctx, key, options, out)
	case !single && (options.Predicate.Limit > 0 || options.Predicate.Continue != ""):
		return s.etcd.GetList(ctx, key, options, out)
	}
	options.Predicate.Field = others
	if err := s.Interface.GetList(ctx, key, options, out); err != nil || single {
		return err
	}
	list.Items = slices.DeleteFunc(list.Items, func(object Object) bool { return !match(names, object.GetName()) })
	return nil
}

// split returns the requirements on names, and a selector with the others.
func split(selector fields.Selector) (names fields.Requirements, others fields.Selector) {
	if selector == nil {
		return nil, nil
	}
	for _, requirement := range selector.Requirements() {
		if requirement.Field == nameField {
			names = append(names, requirement)
		}
	}
	if len(names) == 0 {
		return nil, selector
	}
	// Without a field a requirement is dropped. The function returns no errors.
	others, _ = selector.Transform(func(field, value string) (string, string, error) {
		if field == nameField {
			return "", "", nil
		}
		return field, value, nil
	})
	return names, others
}

// isKey reports whether the requirements only repeat the name in the key of a request.
func isKey(names fields.Requirements, recursive bool) bool {
	return !recursive && len(names) == 1 && names[0].Operator != selection.NotEquals
}

func match(names fields.Requirements, name string) bool {
	return !slices.ContainsFunc(names, func(r fields.Requirement) bool {
		return (r.Operator == selection.NotEquals) == (r.Value == name)
	})
}

func withoutName(ctx context.Context) context.Context {
	info, ok := request.RequestInfoFrom(ctx)
	if !ok || info.Name == "" {
		return ctx
	}
	unnamed := *info
	unnamed.Name = ""
	return request.WithRequestInfo(ctx, &unnamed)
}
