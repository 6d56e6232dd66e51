// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package namespace

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/pager"
	"k8s.io/klog/v2"

	"github.com/annex-dev/annex/pkg/standalone/controller/metadatainformers"
)

// leftover counts the objects that are left in a namespace after the deletion.
type leftover struct {
	// objects counts the remaining objects of each resource.
	objects map[schema.GroupResource]int
	// finalizers counts the objects that wait for each finalizer.
	finalizers map[string]int
	// grace is the longest remaining grace period.
	grace time.Duration
}

func (l leftover) isEmpty() bool {
	return len(l.objects) == 0
}

// add adds what is left of one resource.
func (l *leftover) add(resource schema.GroupResource, found inventory) {
	if found.total == 0 {
		return
	}
	if l.objects == nil {
		l.objects, l.finalizers = map[schema.GroupResource]int{}, map[string]int{}
	}
	l.objects[resource] += found.total
	for name, count := range found.finalizers {
		l.finalizers[name] += count
	}
	l.grace = max(l.grace, found.grace)
}

// inventory is the result of listing a resource.
type inventory struct {
	total      int
	finalizers map[string]int
	grace      time.Duration
	// toDelete is the number of objects that are not being deleted yet.
	toDelete int
}

// contentDeleter deletes the objects of a namespace.
type contentDeleter struct {
	annexMetadata metadata.Interface
	storedObjects StoredObjectsFunc
	now           func() time.Time
}

// deleteAll deletes the objects of all resources, also if some fail.
func (d *contentDeleter) deleteAll(ctx context.Context, namespace string, resources []resource) (leftover, []error) {
	var left leftover
	var failed []error
	for _, item := range resources {
		found, err := d.deleteResource(ctx, namespace, item)
		if err != nil {
			failed = append(failed, fmt.Errorf("delete %s: %w", item.gvr.GroupResource(), err))
		}
		left.add(item.gvr.GroupResource(), found)
	}
	return left, failed
}

// deleteResource deletes all objects of one resource in the namespace and returns what is
// left. It lists first: most resources are empty in most namespaces, and then need only
// this request.
//
// Unlike kube-controller-manager it treats a 404 or 405 as an error where discovery has
// the resource. If the resource is gone, discovery will not list it next time.
func (d *contentDeleter) deleteResource(ctx context.Context, namespace string, item resource) (inventory, error) {
	objects, err := d.contents(namespace, item)
	if err != nil {
		return inventory{}, err
	}
	found, err := d.list(ctx, objects)
	if err != nil || found.toDelete == 0 {
		return found, err
	}
	klog.FromContext(ctx).V(4).Info("Deleting contents of namespace", "namespace", namespace, "resource", item.gvr, "objects", found.toDelete)
	// Orphaning, as a resource's default, could add a finalizer.
	options := metav1.DeleteOptions{PropagationPolicy: new(metav1.DeletePropagationBackground)}
	if err := objects.DeleteCollection(ctx, options, metav1.ListOptions{}); err != nil {
		return found, fmt.Errorf("delete the collection: %w", err)
	}
	return d.list(ctx, objects)
}

// contents returns the objects of one resource, also of one without a served version: they
// would be in the next namespace of that name once one is served.
func (d *contentDeleter) contents(namespace string, item resource) (Contents, error) {
	if item.unserved != nil {
		return d.storedObjects(item.unserved, namespace)
	}
	return d.annexMetadata.Resource(item.gvr).Namespace(namespace), nil
}

// list pages through the objects of one resource.
func (d *contentDeleter) list(ctx context.Context, objects Contents) (inventory, error) {
	found := inventory{finalizers: map[string]int{}}
	pages := pager.New(func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
		return objects.List(ctx, options)
	})
	err := pages.EachListItem(ctx, metav1.ListOptions{}, func(obj runtime.Object) error {
		object, ok := obj.(*metav1.PartialObjectMetadata)
		if !ok {
			return fmt.Errorf("unexpected list item %T", obj)
		}
		found.total++
		for _, name := range object.Finalizers {
			found.finalizers[name]++
		}
		if object.DeletionTimestamp.IsZero() {
			found.toDelete++
		} else {
			// The timestamp of a graceful deletion is the end of the grace period.
			found.grace = max(found.grace, object.DeletionTimestamp.Sub(d.now()))
		}
		return nil
	})
	if err != nil {
		return found, fmt.Errorf("list objects: %w", err)
	}
	return found, nil
}

// errNothingDiscovered is returned for discovery without any resource.
var errNothingDiscovered = errors.New("discovery lists no namespaced resources")

// definition shortens the type's name in signatures.
type definition = apiextensionsv1.CustomResourceDefinition

// resource is a resource in the namespace.
type resource struct {
	gvr schema.GroupVersionResource
	// unserved is the definition of a custom resource without a version that is served.
	unserved *definition
}

// resourcesToDelete returns, in a stable order, the resources in discovery, and custom
// resources that are missing there.
func resourcesToDelete(lists []*metav1.APIResourceList, definitions []*definition) ([]resource, []error) {
	var failed []error
	found := map[schema.GroupResource]resource{}
	for _, list := range lists {
		groupVersion, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			failed = append(failed, fmt.Errorf("parse group version %q from discovery: %w", list.GroupVersion, err))
			continue
		}
		for i := range list.APIResources {
			if item, ok := fromDiscovery(groupVersion, &list.APIResources[i]); ok {
				found[item.gvr.GroupResource()] = item
			}
		}
	}
	for _, crd := range definitions {
		item, ok := fromDefinition(crd)
		if !ok {
			continue
		}
		if _, listed := found[item.gvr.GroupResource()]; !listed {
			found[item.gvr.GroupResource()] = item
		}
	}
	resources := make([]resource, 0, len(found))
	for _, item := range found {
		resources = append(resources, item)
	}
	slices.SortFunc(resources, func(a, b resource) int {
		return cmp.Or(strings.Compare(a.gvr.Group, b.gvr.Group), strings.Compare(a.gvr.Resource, b.gvr.Resource))
	})
	return resources, failed
}

// fromDiscovery returns false for entries without objects to delete. What annex can delete
// it can list and delete as a collection.
func fromDiscovery(groupVersion schema.GroupVersion, entry *metav1.APIResource) (resource, bool) {
	return resource{gvr: groupVersion.WithResource(entry.Name)},
		entry.Namespaced && !strings.Contains(entry.Name, "/") && slices.Contains(entry.Verbs, "delete")
}

// fromDefinition returns the resource of a definition, and false if that is not namespaced or
// was never served.
func fromDefinition(crd *definition) (resource, bool) {
	defined, served := metadatainformers.FromDefinition(crd)
	item := resource{gvr: defined.GroupVersionResource}
	if !served {
		item.unserved = crd
	}
	return item, defined.Namespaced
}
