// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"bytes"
	"cmp"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/annex-dev/annex/pkg/storage/etcd/keys"
)

// internalPrefix begins annex's own keys below the root, which are not objects.
var internalPrefix = []byte(strings.TrimPrefix(keys.Own(""), keys.Root("")))

// counts are the usage by resource and namespace below root.
type counts struct {
	root     string
	total    Usage
	byPrefix map[string]*counter
}

type counter struct {
	resource    schema.GroupResource
	usage       Usage
	byNamespace map[string]*Usage // nil if not namespaced
	changed     bool              // by the current response
}

func newCounts(root string) *counts {
	return &counts{root: root, byPrefix: map[string]*counter{}}
}

// of returns the counter of a resource, an empty one if there are no objects.
func (c *counts) of(resource schema.GroupResource) *counter {
	return cmp.Or(c.byPrefix[toPrefix(resource)], &counter{})
}

// count adds to the counters of a key. It returns the resource's counter, or nil if
// nothing changed.
func (c *counts) count(key []byte, d Usage) *counter {
	if d == (Usage{}) || !isObject(c.root, key) {
		return nil
	}
	key = key[len(c.root):]
	prefix, groupLength := resourcePrefix(key)
	found := c.byPrefix[string(prefix)] // does not allocate
	if found == nil {
		found = &counter{resource: toResource(string(prefix), groupLength)}
		c.byPrefix[string(prefix)] = found
	}
	found.usage.add(d)
	found.addToNamespace(namespaceOf(key[len(prefix):]), d)
	c.total.add(d)
	return found
}

func (c *counter) addToNamespace(namespace []byte, d Usage) {
	if len(namespace) == 0 {
		return
	}
	in := c.byNamespace[string(namespace)] // does not allocate
	if in == nil {
		if c.byNamespace == nil {
			c.byNamespace = map[string]*Usage{}
		}
		in = &Usage{}
		c.byNamespace[string(namespace)] = in
	}
	in.add(d)
	if *in == (Usage{}) {
		delete(c.byNamespace, string(namespace))
	}
}

// settle ends the counting of a response. It removes empty counters, which would otherwise
// accumulate on a server with changing CRDs.
func (c *counts) settle(changed []schema.GroupResource) {
	for _, resource := range changed {
		prefix := toPrefix(resource)
		counter := c.byPrefix[prefix]
		counter.changed = false
		if counter.usage == (Usage{}) {
			delete(c.byPrefix, prefix)
		}
	}
}

// isObject reports whether a key below the root belongs to an object.
func isObject(root string, key []byte) bool {
	return len(key) >= len(root) && !bytes.HasPrefix(key[len(root):], internalPrefix)
}

// resourcePrefix returns the part of a key below the root that names the resource: the
// first segment, or the first two if the first is a group, which contains a dot.
// groupLength is 0 without a group.
func resourcePrefix(key []byte) (prefix []byte, groupLength int) {
	first := bytes.IndexByte(key, '/')
	if first < 0 {
		return key, 0
	}
	if bytes.IndexByte(key[:first], '.') < 0 {
		return key[:first], 0
	}
	second := bytes.IndexByte(key[first+1:], '/')
	if second < 0 {
		return key, first
	}
	return key[:first+1+second], first
}

// namespaceOf returns the namespace in the rest of a key, /namespace/name or /name.
func namespaceOf(rest []byte) []byte {
	if len(rest) == 0 {
		return nil
	}
	rest = rest[1:]
	if end := bytes.IndexByte(rest, '/'); end > 0 {
		return rest[:end]
	}
	return nil
}

func toResource(prefix string, groupLength int) schema.GroupResource {
	if groupLength == 0 {
		return schema.GroupResource{Resource: prefix}
	}
	return schema.GroupResource{Group: prefix[:groupLength], Resource: prefix[groupLength+1:]}
}

func toPrefix(resource schema.GroupResource) string {
	if resource.Group == "" {
		return resource.Resource
	}
	return resource.Group + "/" + resource.Resource
}
