// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"errors"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/registry/typed"
)

// Storage has the endpoints of Stores.
type Storage struct {
	Store  *REST
	Status *typed.SubresourceREST
}

// NewStorage returns the endpoints of Stores.
func NewStorage(scheme *runtime.Scheme, getter generic.RESTOptionsGetter) (*Storage, error) {
	main := newStrategy(scheme)
	store, err := typed.NewREST(scheme, getter, typed.Resource{
		Kind:       v1alpha1.SchemeGroupVersion.WithKind("Store"),
		ShortNames: []string{"sto"},
		Categories: []string{"annex"},
		Strategy:   main,
		Table:      tableConvertor,
	})
	if err != nil {
		return nil, err
	}
	return &Storage{Store: &REST{REST: store}, Status: store.Subresource(main.ForStatus())}, nil
}

// REST is the main endpoint of Stores.
type REST struct {
	*typed.REST
	// resources lists HostedResources.
	resources rest.Lister
}

// HoldsResources makes the deletion of a Store fail while one of these HostedResources is
// placed on it.
func (r *REST) HoldsResources(resources rest.Lister) { r.resources = resources }

var _ rest.StandardStorage = &REST{}

// Delete implements rest.GracefulDeleter.
func (r *REST) Delete(ctx context.Context, name string, validate rest.ValidateObjectFunc, options *metav1.DeleteOptions) (runtime.Object, bool, error) {
	return r.REST.Delete(ctx, name, r.unlessNeeded(validate), options)
}

// DeleteCollection implements rest.CollectionDeleter.
func (r *REST) DeleteCollection(ctx context.Context, validate rest.ValidateObjectFunc, options *metav1.DeleteOptions, listOptions *internalversion.ListOptions) (runtime.Object, error) {
	return r.REST.DeleteCollection(ctx, r.unlessNeeded(validate), options, listOptions)
}

// unlessNeeded refuses to delete the Store "default" and Stores with HostedResources.
func (r *REST) unlessNeeded(validate rest.ValidateObjectFunc) rest.ValidateObjectFunc {
	return func(ctx context.Context, obj runtime.Object) error {
		object, err := meta.Accessor(obj)
		if err != nil {
			return err
		}
		name := object.GetName()
		if name == v1alpha1.DefaultStoreName {
			return apierrors.NewForbidden(v1alpha1.Resource("stores"), name, errors.New("this Store always exists"))
		}
		held, err := r.held(ctx, name)
		if err != nil {
			return fmt.Errorf("list the HostedResources on Store %s: %w", name, err)
		}
		if len(held) > 0 {
			return apierrors.NewConflict(v1alpha1.Resource("stores"), name, fmt.Errorf(
				"it holds %s: a Store can be deleted once nothing is placed on it. Back up what is to be kept, then delete the CustomResourceDefinitions and HostedResources", some(held)))
		}
		return validate(ctx, obj)
	}
}

// held returns the names of the HostedResources on a Store.
func (r *REST) held(ctx context.Context, store string) ([]string, error) {
	if r.resources == nil {
		return nil, nil
	}
	placed := fields.OneTermEqualSelector(v1alpha1.HostedResourceStoreNameField, store)
	list, err := r.resources.List(ctx, &internalversion.ListOptions{FieldSelector: placed})
	if err != nil {
		return nil, err
	}
	var names []string
	for _, resource := range list.(*v1alpha1.HostedResourceList).Items {
		names = append(names, resource.Name)
	}
	return names, nil
}

// some joins the first names.
func some(names []string) string {
	const shown = 5
	if len(names) <= shown {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:shown], ", "), len(names)-shown)
}
