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
	// resources lists HostedResources, migrations Migrations.
	resources, migrations rest.Lister
}

// HoldsResources makes the deletion of a Store fail while one of these HostedResources is
// placed on it, or one of these Migrations moves a resource from or to it.
func (r *REST) HoldsResources(resources, migrations rest.Lister) {
	r.resources, r.migrations = resources, migrations
}

var _ rest.StandardStorage = &REST{}

// Delete implements rest.GracefulDeleter.
func (r *REST) Delete(ctx context.Context, name string, validate rest.ValidateObjectFunc, options *metav1.DeleteOptions) (runtime.Object, bool, error) {
	return r.REST.Delete(ctx, name, r.unlessNeeded(validate), options)
}

// DeleteCollection implements rest.CollectionDeleter.
func (r *REST) DeleteCollection(ctx context.Context, validate rest.ValidateObjectFunc, options *metav1.DeleteOptions, listOptions *internalversion.ListOptions) (runtime.Object, error) {
	return r.REST.DeleteCollection(ctx, r.unlessNeeded(validate), options, listOptions)
}

// unlessNeeded refuses to delete the Store "default", Stores with HostedResources, and Stores that
// Migrations use, unless their etcd is lost.
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
				"it holds %s: a Store can be deleted once nothing is placed on it. Move them to other Stores with `kubectl annex drain %s`", some(held), name))
		}
		moving, err := r.moving(ctx, name)
		if err != nil {
			return fmt.Errorf("list the Migrations from and to Store %s: %w", name, err)
		}
		if len(moving) > 0 && !isUnavailable(obj) {
			return apierrors.NewConflict(v1alpha1.Resource("stores"), name, fmt.Errorf(
				"it is used by the Migrations %s: wait until they are finished, or delete them. Once its etcd is lost, the Store can be deleted", some(moving)))
		}
		return validate(ctx, obj)
	}
}

// isUnavailable reports whether annex cannot use the etcd of a Store.
func isUnavailable(obj runtime.Object) bool {
	store, ok := obj.(*v1alpha1.Store)
	return ok && meta.IsStatusConditionFalse(store.Status.Conditions, v1alpha1.StoreReady)
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

// moving returns the names of the unfinished Migrations from or to a Store.
func (r *REST) moving(ctx context.Context, store string) ([]string, error) {
	if r.migrations == nil {
		return nil, nil
	}
	list, err := r.migrations.List(ctx, &internalversion.ListOptions{})
	if err != nil {
		return nil, err
	}
	var names []string
	for _, migration := range list.(*v1alpha1.MigrationList).Items {
		if migration.Uses(store) {
			names = append(names, migration.Name)
		}
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
