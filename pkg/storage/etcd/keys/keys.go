// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package keys defines the keys of annex in the etcd of a Store.
//
// The keys of objects begin with "<prefix>/<group>/<plural>/", or with "<prefix>/<plural>/" for
// Kubernetes' own kinds. annex's own keys are below "<prefix>/_annex/": no group or plural begins
// with an underscore, so they are never taken for objects.
package keys

import (
	"path"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// own is the segment below the prefix of annex's own keys.
const own = "_annex"

// coreGroup replaces the empty group.
const coreGroup = "core"

// Above returns the prefixes that contain a prefix, the nearest first.
func Above(prefix string) []string {
	var above []string
	for prefix = path.Join("/", prefix); prefix != "/"; {
		prefix = path.Dir(prefix)
		above = append(above, prefix)
	}
	return above
}

// IsStore reports whether a key is the key Store of any prefix.
func IsStore(key string) bool { return strings.HasSuffix(key, Store("")) }

// Root begins the keys below a Store's prefix, which may be written with or without slashes
// around it.
func Root(prefix string) string {
	return folder(path.Join("/", prefix))
}

// Objects begins the keys of a custom resource's objects.
func Objects(prefix string, resource schema.GroupResource) string {
	return Root(prefix) + path.Join(resource.Group, resource.Resource) + "/"
}

// Own begins annex's own keys.
func Own(prefix string) string { return Root(prefix) + own + "/" }

// Beside returns the ranges of keys below a prefix before and after annex's own. A range is its
// first key and the exclusive end.
func Beside(prefix string) (before, after [2]string) {
	root, notes := Root(prefix), Own(prefix)
	return [2]string{root, notes}, [2]string{clientv3.GetPrefixRangeEnd(notes), clientv3.GetPrefixRangeEnd(root)}
}

// Store is the key of the mark: the Store and annex that use the prefix.
func Store(prefix string) string { return Own(prefix) + "store" }

// Checkpoints begins the keys that prove the history of an etcd.
func Checkpoints(prefix string) string { return Own(prefix) + "checkpoints/" }

// Dictionaries begins the keys of a resource's compression dictionaries.
func Dictionaries(prefix string, resource schema.GroupResource) string {
	return folder(of(prefix, "dictionaries", resource))
}

// AllDictionaries begins the keys of every resource's dictionaries.
func AllDictionaries(prefix string) string { return Own(prefix) + "dictionaries/" }

// Dictionary is the key of one dictionary.
func Dictionary(prefix string, resource schema.GroupResource, id string) string {
	return Dictionaries(prefix, resource) + id
}

// Restore is the key that exists while a backup is restored to an empty etcd, whose data are
// incomplete then.
func Restore(prefix string) string { return Own(prefix) + "restore" }

// Revisions begins the keys of revision offsets.
func Revisions(prefix string) string { return Own(prefix) + "revisions/" }

// Revision is the key of the revision offset of a resource.
func Revision(prefix string, resource schema.GroupResource) string {
	return of(prefix, "revisions", resource)
}

// Limit is the key that orders all writes that may exceed the limits of a resource.
func Limit(prefix string, resource schema.GroupResource) string {
	return of(prefix, "limits", resource)
}

// Frozen is the key that exists while writes of a resource are refused.
func Frozen(prefix string, resource schema.GroupResource) string {
	return of(prefix, "frozen", resource)
}

// Departure is the key that exists while a resource is moved out of the Store.
func Departure(prefix string, resource schema.GroupResource) string {
	return of(prefix, "moves/out", resource)
}

// Arrival is the key that records a move of a resource into the Store.
func Arrival(prefix string, resource schema.GroupResource) string {
	return of(prefix, "moves/in", resource)
}

// Pairs begins the keys of the UIDs that objects of a resource have in another cluster.
func Pairs(prefix string, resource schema.GroupResource) string {
	return folder(of(prefix, "pairs", resource))
}

// Tombstone is a key among the objects of a resource. It is put when the resource is closed, and exists
// only for a moment. No object has this name.
func Tombstone(prefix string, resource schema.GroupResource) string {
	return Objects(prefix, resource) + own
}

// of returns the key of some kind for a resource.
func of(prefix, kind string, resource schema.GroupResource) string {
	group := resource.Group
	if group == "" {
		group = coreGroup
	}
	return Own(prefix) + path.Join(kind, group, resource.Resource)
}

func folder(key string) string {
	if strings.HasSuffix(key, "/") {
		return key
	}
	return key + "/"
}
