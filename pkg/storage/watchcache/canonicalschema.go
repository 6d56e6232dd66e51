// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package watchcache

import (
	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/utils/ptr"
)

// canonicalSchema recognises the objects of a version of a custom resource.
type canonicalSchema struct {
	apiVersion, kind string
	root             *node
}

// newCanonicalSchema returns the schema of a version. It is nil if none of its objects can be recognised.
func newCanonicalSchema(definition *apiextensionsv1.CustomResourceDefinition, version string) *canonicalSchema {
	if definition.Spec.PreserveUnknownFields {
		return nil
	}
	validation, err := apihelpers.GetSchemaForVersion(definition, version)
	if err != nil || validation == nil || validation.OpenAPIV3Schema == nil {
		return nil
	}
	root := newNode(validation.OpenAPIV3Schema, false)
	if root.embedded || root.properties["metadata"].node.changes() {
		return nil
	}
	for _, always := range []string{"apiVersion", "kind", "metadata"} {
		if root.properties[always].defaulted {
			root.defaults--
		}
		delete(root.properties, always)
	}
	return &canonicalSchema{apiVersion: definition.Spec.Group + "/" + version, kind: definition.Status.AcceptedNames.Kind, root: root}
}

// node describes the values at a place of the schema that are not changed by pruning and
// defaulting. It follows k8s.io/apiextensions-apiserver/pkg/apiserver/schema, packages pruning
// and defaulting.
type node struct {
	properties map[string]property
	// defaults is the number of properties with a default.
	defaults int
	// unknown has the values of other keys. With nil there are none.
	unknown *node
	// items has the items of a list.
	items *node
	// nullable is set if null is kept.
	nullable bool
	// embedded is set for objects with metadata of their own, which are normalised too.
	embedded bool
}

type property struct {
	node      *node
	defaulted bool
}

// Nodes of the many places without a schema.
var (
	// free keeps everything.
	free = newFree(nil)
	// notNull keeps everything but null.
	notNull = newFree(free)
	// closed keeps scalars.
	closed = newClosed()
)

// newFree returns a node that keeps null if below is nil. All below it is as free then.
func newFree(below *node) *node {
	n := &node{nullable: below == nil, unknown: below, items: below}
	if below == nil {
		n.unknown, n.items = n, n
	}
	return n
}

func newClosed() *node {
	n := &node{}
	n.items = n
	return n
}

// newNode returns the node of a schema. preserve is set for items of lists that keep unknown
// fields: they keep theirs.
func newNode(schema *apiextensionsv1.JSONSchemaProps, preserve bool) *node {
	if schema == nil {
		if preserve {
			return free
		}
		return closed
	}
	preserve = preserve || ptr.Deref(schema.XPreserveUnknownFields, false)
	if len(schema.Properties) == 0 && schema.AdditionalProperties == nil && schema.Items == nil && !schema.XEmbeddedResource {
		if preserve {
			return notNull
		}
		return closed
	}
	n := &node{embedded: schema.XEmbeddedResource, properties: make(map[string]property, len(schema.Properties))}
	for name := range schema.Properties {
		child := schema.Properties[name]
		added := property{node: newNode(&child, false), defaulted: child.Default != nil}
		n.properties[name] = added
		if added.defaulted {
			n.defaults++
		}
	}
	switch {
	case schema.AdditionalProperties != nil:
		n.unknown = newNode(schema.AdditionalProperties.Schema, false)
	case preserve:
		n.unknown = free
	}
	var items *apiextensionsv1.JSONSchemaProps
	if schema.Items != nil {
		items = schema.Items.Schema
	}
	n.items = newNode(items, preserve)
	return n
}

// changes reports whether there may be defaults or embedded objects below a node.
func (n *node) changes() bool {
	if n == nil || n == free || n == notNull || n == closed {
		return false
	}
	if n.embedded || n.defaults > 0 || n.unknown.changes() || n.items.changes() {
		return true
	}
	for _, child := range n.properties {
		if child.node.changes() {
			return true
		}
	}
	return false
}
