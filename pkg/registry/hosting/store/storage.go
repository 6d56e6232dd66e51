// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/annex-dev/annex/pkg/apis/hosting"
	"github.com/annex-dev/annex/pkg/registry/typed"
)

// Storage is the endpoints of Stores.
type Storage struct {
	Store  *REST
	Status *typed.Subresource
}

// NewStorage returns the endpoints of Stores.
func NewStorage(typer runtime.ObjectTyper, getter generic.RESTOptionsGetter) (*Storage, error) {
	store, err := typed.NewStore(typed.Resource{
		Resource:   hosting.Resource("stores"),
		Singular:   "store",
		ShortNames: []string{"sto"},
		Categories: []string{"annex"},
		New:        func() runtime.Object { return &hosting.Store{} },
		NewList:    func() runtime.Object { return &hosting.StoreList{} },
		Strategy:   newStrategy(typer),
		Table:      tableConvertor,
	}, getter)
	if err != nil {
		return nil, err
	}
	return &Storage{Store: &REST{store}, Status: store.Subresource(newStatusStrategy(typer))}, nil
}

// REST is the main endpoint of Stores.
type REST struct {
	*typed.Store
}

var _ rest.StandardStorage = &REST{}

// Delete implements rest.GracefulDeleter.
func (r *REST) Delete(ctx context.Context, name string, validate rest.ValidateObjectFunc, options *metav1.DeleteOptions) (runtime.Object, bool, error) {
	return r.Store.Delete(ctx, name, exceptDefault(validate), options)
}

// DeleteCollection implements rest.CollectionDeleter.
func (r *REST) DeleteCollection(ctx context.Context, validate rest.ValidateObjectFunc, options *metav1.DeleteOptions, listOptions *internalversion.ListOptions) (runtime.Object, error) {
	return r.Store.DeleteCollection(ctx, exceptDefault(validate), options, listOptions)
}

// exceptDefault refuses to delete the Store that always exists, and leaves the
// others to validate.
func exceptDefault(validate rest.ValidateObjectFunc) rest.ValidateObjectFunc {
	return func(ctx context.Context, obj runtime.Object) error {
		object, err := meta.Accessor(obj)
		if err != nil {
			return err
		}
		if name := object.GetName(); name == hosting.DefaultStoreName {
			return apierrors.NewForbidden(hosting.Resource("stores"), name, errors.New("this Store always exists"))
		}
		return validate(ctx, obj)
	}
}
