// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package keys says under which keys annex keeps what in the etcd of a Store.
//
// Objects are found under "<prefix>/<group>/<plural>/", those of the Kubernetes
// kinds under "<prefix>/<plural>/". What annex notes for itself is under
// "<prefix>/_annex/": no group and no plural begins with an underscore, so it is
// never taken for an object.
package keys

import (
	"path"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// own is the segment below the prefix that annex keeps its notes under.
const own = "_annex"

// coreGroup stands for the empty group where a group must be named.
const coreGroup = "core"

// Above are the prefixes that contain a prefix, the nearest first.
func Above(prefix string) []string {
	var above []string
	for prefix = path.Join("/", prefix); prefix != "/"; {
		prefix = path.Dir(prefix)
		above = append(above, prefix)
	}
	return above
}

// IsStore reports whether a key is that of Store for any prefix.
func IsStore(key string) bool { return strings.HasSuffix(key, Store("")) }

// Root is what the keys below a Store's prefix begin with. The prefix may be
// written with or without slashes around it.
func Root(prefix string) string {
	return folder(path.Join("/", prefix))
}

// Objects is what the keys of a custom resource's objects begin with.
func Objects(prefix string, resource schema.GroupResource) string {
	return Root(prefix) + path.Join(resource.Group, resource.Resource) + "/"
}

// Own is what the keys of annex's notes begin with.
func Own(prefix string) string { return Root(prefix) + own + "/" }

// IsOwn reports whether a key is of a note of annex's, not of an object.
func IsOwn(prefix, key string) bool {
	below, found := strings.CutPrefix(key, Root(prefix))
	return found && strings.HasPrefix(below, own+"/")
}

// Beside is the range of keys below a prefix without annex's notes, in two parts:
// those before the notes and those after them. Each part is a first key and the end
// of its range, which is not in it.
func Beside(prefix string) (before, after [2]string) {
	root, notes := Root(prefix), Own(prefix)
	return [2]string{root, notes}, [2]string{clientv3.GetPrefixRangeEnd(notes), clientv3.GetPrefixRangeEnd(root)}
}

// Store is the key that says which Store of which annex uses the prefix.
func Store(prefix string) string { return Own(prefix) + "store" }

// Checkpoints is what the keys begin with that prove how much of an etcd's history is
// there.
func Checkpoints(prefix string) string { return Own(prefix) + "checkpoints/" }

// Dictionaries is what the keys of a resource's compression dictionaries begin with.
func Dictionaries(prefix string, resource schema.GroupResource) string {
	return folder(of(prefix, "dictionaries", resource))
}

// AllDictionaries is what the keys of every resource's dictionaries begin with.
func AllDictionaries(prefix string) string { return Own(prefix) + "dictionaries/" }

// Dictionary is the key of one of them.
func Dictionary(prefix string, resource schema.GroupResource, id string) string {
	return Dictionaries(prefix, resource) + id
}

// Restore is the key that is there while a backup is copied to an empty etcd: what is
// below the prefix is not whole then.
func Restore(prefix string) string { return Own(prefix) + "restore" }

// Revisions is what the keys begin with that say by how much the revisions of
// resources are shifted.
func Revisions(prefix string) string { return Own(prefix) + "revisions/" }

// Revision is that key of one resource.
func Revision(prefix string, resource schema.GroupResource) string {
	return of(prefix, "revisions", resource)
}

// Limit is the key that every write is ordered by which may bring a resource
// beyond its limits.
func Limit(prefix string, resource schema.GroupResource) string {
	return of(prefix, "limits", resource)
}

// Frozen is the key that is there while nothing may write a resource.
func Frozen(prefix string, resource schema.GroupResource) string {
	return of(prefix, "frozen", resource)
}

// of is the key of a note of some kind about a resource.
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
