// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package metadatainformers

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unique"

	apiextensionshelpers "k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

// Resource is a resource whose objects are watched.
type Resource struct {
	// GroupVersionResource has the version in which objects are read.
	schema.GroupVersionResource
	Kind       string
	Namespaced bool
}

// HasKind reports whether the kind in an owner reference names the resource. It may be in lower case, as
// for kube-controller-manager.
func (r Resource) HasKind(kind schema.GroupKind) bool {
	return kind.Group == r.Group && (kind.Kind == r.Kind || kind.Kind == strings.ToLower(r.Kind))
}

// served is a resource that is served.
type served struct {
	Resource
	// definition is the UID of a custom resource's definition.
	definition types.UID
}

// followable are the verbs that watching and collecting objects needs.
var followable = []string{"list", "watch", "delete"}

// isIgnored reports whether a resource is left out. Events are many and short-lived, and
// have no owners and quotas.
func isIgnored(resource schema.GroupResource) bool {
	return resource.Resource == "events" && (resource.Group == "" || resource.Group == "events.k8s.io")
}

// fromDiscovery returns the resources in discovery without a definition, each in the
// version that is listed first.
func fromDiscovery(lists []*metav1.APIResourceList, defined map[schema.GroupResource]bool) (map[schema.GroupResource]served, error) {
	found := map[schema.GroupResource]served{}
	for _, list := range lists {
		groupVersion, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			return nil, fmt.Errorf("parse group version %q from discovery: %w", list.GroupVersion, err)
		}
		for i := range list.APIResources {
			entry := &list.APIResources[i]
			resource := groupVersion.WithResource(entry.Name)
			if strings.Contains(entry.Name, "/") || isIgnored(resource.GroupResource()) || defined[resource.GroupResource()] || !hasVerbs(entry.Verbs) {
				continue
			}
			if _, known := found[resource.GroupResource()]; !known {
				found[resource.GroupResource()] = served{Resource: Resource{GroupVersionResource: resource, Kind: entry.Kind, Namespaced: entry.Namespaced}}
			}
		}
	}
	return found, nil
}

func hasVerbs(verbs metav1.Verbs) bool {
	return !slices.ContainsFunc(followable, func(verb string) bool { return !slices.Contains(verbs, verb) })
}

// FromDefinition returns the resource of a definition, and false if it is not served. It is empty if
// the definition was not accepted.
func FromDefinition(crd *apiextensionsv1.CustomResourceDefinition) (Resource, bool) {
	item, ok := fromDefinition(crd)
	return item.Resource, ok
}

func fromDefinition(crd *apiextensionsv1.CustomResourceDefinition) (served, bool) {
	// apiextensions-apiserver serves definitions by the same rule.
	accepted := apiextensionshelpers.IsCRDConditionTrue(crd, apiextensionsv1.Established) ||
		apiextensionshelpers.IsCRDConditionTrue(crd, apiextensionsv1.NamesAccepted)
	if !accepted {
		return served{}, false
	}
	item := served{definition: crd.UID}
	read := ""
	for i := range crd.Spec.Versions {
		version := &crd.Spec.Versions[i]
		if version.Served && (read == "" || version.Storage) {
			read = version.Name
		}
	}
	// Accepted names stay, even if the spec has changed.
	item.Resource = Resource{
		GroupVersionResource: schema.GroupVersionResource{Group: crd.Spec.Group, Version: read, Resource: crd.Spec.Names.Plural},
		Kind:                 crd.Status.AcceptedNames.Kind,
		Namespaced:           crd.Spec.Scope == apiextensionsv1.NamespaceScoped,
	}
	return item, read != ""
}

// definedBy returns the resources of definitions, served or not.
func definedBy(definitions []*apiextensionsv1.CustomResourceDefinition) map[schema.GroupResource]bool {
	defined := map[schema.GroupResource]bool{}
	for _, crd := range definitions {
		defined[schema.GroupResource{Group: crd.Spec.Group, Resource: crd.Spec.Names.Plural}] = true
	}
	return defined
}

// Object holds the stored fields of an object. It is immutable.
type Object struct {
	Namespace, Name string
	UID             types.UID
	// Owners are the owner references in the object, in the order of their UIDs.
	Owners []metav1.OwnerReference
	// Deleting means that a deletion was requested.
	Deleting bool
	// Foreground and Orphan mean that it has the finalizer foregroundDeletion or orphan.
	Foreground, Orphan bool
}

func (o *Object) equal(other *Object) bool {
	return o.UID == other.UID && o.Deleting == other.Deleting && o.Foreground == other.Foreground && o.Orphan == other.Orphan &&
		slices.EqualFunc(o.Owners, other.Owners, EqualOwners)
}

// EqualOwners reports whether two references are equal.
func EqualOwners(a, b metav1.OwnerReference) bool {
	return a.UID == b.UID && a.Name == b.Name && a.Kind == b.Kind && a.APIVersion == b.APIVersion &&
		ptr.Equal(a.Controller, b.Controller) && ptr.Equal(a.BlockOwnerDeletion, b.BlockOwnerDeletion)
}

// NewObject copies the stored fields, without references to the rest.
func NewObject(from *metav1.PartialObjectMetadata) *Object {
	object := &Object{
		Namespace:  intern(from.Namespace),
		Name:       from.Name,
		UID:        from.UID,
		Deleting:   from.DeletionTimestamp != nil,
		Foreground: slices.Contains(from.Finalizers, metav1.FinalizerDeleteDependents),
		Orphan:     slices.Contains(from.Finalizers, metav1.FinalizerOrphanDependents),
	}
	if len(from.OwnerReferences) > 0 {
		object.Owners = make([]metav1.OwnerReference, len(from.OwnerReferences))
	}
	for i, owner := range from.OwnerReferences {
		// Siblings share the strings of their owner.
		object.Owners[i] = metav1.OwnerReference{
			APIVersion:         intern(owner.APIVersion),
			Kind:               intern(owner.Kind),
			Name:               intern(owner.Name),
			UID:                types.UID(intern(string(owner.UID))),
			Controller:         shared(owner.Controller),
			BlockOwnerDeletion: shared(owner.BlockOwnerDeletion),
		}
	}
	slices.SortFunc(object.Owners, func(a, b metav1.OwnerReference) int { return cmp.Compare(a.UID, b.UID) })
	return object
}

// References returns the references of the object to an owner.
func (o *Object) References(to types.UID) []metav1.OwnerReference {
	from, _ := slices.BinarySearchFunc(o.Owners, to, func(owner metav1.OwnerReference, uid types.UID) int { return cmp.Compare(owner.UID, uid) })
	end := from
	for end < len(o.Owners) && o.Owners[end].UID == to {
		end++
	}
	return o.Owners[from:end]
}

// intern returns a shared copy of a string.
func intern(s string) string { return unique.Make(s).Value() }

var yes, no = true, false

// shared returns a shared pointer to the value.
func shared(value *bool) *bool {
	switch {
	case value == nil:
		return nil
	case *value:
		return &yes
	default:
		return &no
	}
}
