// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"fmt"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/controller/finalizer"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
)

// StoredObjects are the objects of a custom resource in a namespace, in the version that is
// stored, which need not be served. Upstream's controller deletes the objects of a definition in
// the same way.
type StoredObjects struct {
	objects   finalizer.ListerCollectionDeleter
	namespace string
}

// StoredObjects returns the objects of a custom resource in a namespace.
func (c *Chain) StoredObjects(crd *apiextensionsv1.CustomResourceDefinition, namespace string) (*StoredObjects, error) {
	objects, err := c.customObjects.GetCustomResourceListerCollectionDeleter(crd)
	if err != nil {
		return nil, fmt.Errorf("open the storage of %s: %w", crd.Name, err)
	}
	return &StoredObjects{objects: objects, namespace: namespace}, nil
}

// List returns the metadata that the deletion of a namespace needs, in pages.
func (o *StoredObjects) List(ctx context.Context, options metav1.ListOptions) (*metav1.PartialObjectMetadataList, error) {
	page, err := o.objects.List(request.WithNamespace(ctx, o.namespace), &internalversion.ListOptions{Limit: options.Limit, Continue: options.Continue})
	if err != nil {
		return nil, err
	}
	of, err := meta.ListAccessor(page)
	if err != nil {
		return nil, err
	}
	found := &metav1.PartialObjectMetadataList{ListMeta: metav1.ListMeta{Continue: of.GetContinue(), ResourceVersion: of.GetResourceVersion()}}
	err = meta.EachListItem(page, func(item runtime.Object) error {
		object, err := meta.Accessor(item)
		if err != nil {
			return err
		}
		found.Items = append(found.Items, metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
			Namespace: object.GetNamespace(), Name: object.GetName(), UID: object.GetUID(),
			Finalizers: object.GetFinalizers(), DeletionTimestamp: object.GetDeletionTimestamp(),
		}})
		return nil
	})
	return found, err
}

// DeleteCollection deletes all of them, except those with finalizers. It skips
// admission, which works on served versions only.
func (o *StoredObjects) DeleteCollection(ctx context.Context, options metav1.DeleteOptions, _ metav1.ListOptions) error {
	_, err := o.objects.DeleteCollection(request.WithNamespace(ctx, o.namespace), rest.ValidateAllObjectFunc, &options, &internalversion.ListOptions{})
	return err
}
