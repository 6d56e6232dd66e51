// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package staticobjects

import (
	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/annex-dev/annex/pkg/staticobjects"
)

// isSettled reports whether an attempt to read every source has ended, and each object is
// applied, and served if it is a definition, or needs more than what the sources have. An object
// waits for a static definition or Namespace, unless that is refused.
func (c *Controller) isSettled() bool {
	all := c.states.snapshot()
	var objects []*staticobjects.Object
	for source := range c.locations {
		if _, read := c.manager.Source(source); !read {
			return false
		}
		objects = append(objects, c.manager.Objects(source)...)
	}
	expected := expectedKinds(objects, all)
	for _, object := range objects {
		switch s := all[object.Key]; s.phase {
		case refused:
		case applied:
			if object.Key.GroupKind() == staticobjects.Definition && !c.isServed(object.Key.Name) {
				return false
			}
		case waiting:
			namespace := staticobjects.Key{Kind: staticobjects.Namespace.Kind, Name: object.Key.Namespace}
			switch {
			case s.reason == reasonUnknownKind && !expected[object.Key.GroupKind()]:
			case s.reason == reasonNoNamespace && c.manager.Object(namespace) == nil:
			default:
				return false
			}
		default:
			return false
		}
	}
	return true
}

// isServed reports whether annex serves a definition, or cannot because its names are taken.
func (c *Controller) isServed(name string) bool {
	crd, err := c.config.Definitions.Lister().Get(name)
	return err == nil && (apihelpers.IsCRDConditionTrue(crd, apiextensionsv1.Established) || apihelpers.IsCRDConditionFalse(crd, apiextensionsv1.NamesAccepted))
}

// expectedKinds returns the kinds of static definitions that are not refused.
func expectedKinds(objects []*staticobjects.Object, all map[staticobjects.Key]state) map[schema.GroupKind]bool {
	kinds := map[schema.GroupKind]bool{}
	for _, object := range objects {
		if object.Key.GroupKind() != staticobjects.Definition || all[object.Key].phase == refused {
			continue
		}
		group, _, _ := unstructured.NestedString(object.Content.Object, "spec", "group")
		kind, _, _ := unstructured.NestedString(object.Content.Object, "spec", "names", "kind")
		kinds[schema.GroupKind{Group: group, Kind: kind}] = true
	}
	return kinds
}
