// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package hostedresource

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/registry/rest"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/registry/typed"
)

// Storage has the endpoints of HostedResources.
type Storage struct {
	HostedResource *REST
	Status         *typed.SubresourceREST
}

// NewStorage returns the endpoints of HostedResources.
func NewStorage(scheme *runtime.Scheme, getter generic.RESTOptionsGetter) (*Storage, error) {
	main := newStrategy(scheme)
	store, err := typed.NewREST(scheme, getter, typed.Resource{
		Kind: hostingv1alpha1.SchemeGroupVersion.WithKind("HostedResource"),
		// Not "hr", which is used for HelmReleases of Flux.
		ShortNames: []string{"hres"},
		Categories: []string{"annex"},
		Strategy:   main,
		Attrs:      attrs,
		Table:      tableConvertor,
	})
	if err != nil {
		return nil, err
	}
	return &Storage{HostedResource: &REST{store}, Status: store.Subresource(main.ForStatus())}, nil
}

// REST is the main endpoint of HostedResources.
type REST struct {
	*typed.REST
}

var _ rest.StandardStorage = &REST{}

// Delete implements rest.GracefulDeleter.
func (r *REST) Delete(ctx context.Context, name string, validate rest.ValidateObjectFunc, options *metav1.DeleteOptions) (runtime.Object, bool, error) {
	return r.REST.Delete(ctx, name, unlessInUse(validate), options)
}

// DeleteCollection implements rest.CollectionDeleter.
func (r *REST) DeleteCollection(ctx context.Context, validate rest.ValidateObjectFunc, options *metav1.DeleteOptions, listOptions *internalversion.ListOptions) (runtime.Object, error) {
	return r.REST.DeleteCollection(ctx, unlessInUse(validate), options, listOptions)
}

// unlessInUse refuses to delete a HostedResource while its definition exists: it is the
// only record of the Store of the objects.
func unlessInUse(validate rest.ValidateObjectFunc) rest.ValidateObjectFunc {
	return func(ctx context.Context, obj runtime.Object) error {
		hosted, ok := obj.(*hostingv1alpha1.HostedResource)
		if !ok {
			return fmt.Errorf("delete a HostedResource: unexpected type %T", obj)
		}
		if hosted.Status.DefinitionUID == "" {
			return validate(ctx, obj)
		}
		return apierrors.NewConflict(hostingv1alpha1.Resource("hostedresources"), hosted.Name, fmt.Errorf(
			"it records the Store of the objects of the resource: delete the CustomResourceDefinition %q first", hosted.Name))
	}
}
