// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package escalation

import (
	"context"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/annex-dev/annex/pkg/registry/typed"
)

// Check returns an error if the caller in ctx must not store object. For a create, old is
// nil, or empty if the request was an update.
type Check func(ctx context.Context, object, old runtime.Object) error

// REST checks every write. Patches and server-side apply are updates.
type REST struct {
	*typed.REST
	check Check
}

var (
	_ rest.StandardStorage        = &REST{}
	_ rest.StorageVersionProvider = &REST{}
)

// NewREST returns an endpoint with a check.
func NewREST(store *typed.REST, check Check) *REST {
	return &REST{REST: store, check: check}
}

// Create implements rest.Creater.
func (s *REST) Create(ctx context.Context, object runtime.Object, validation rest.ValidateObjectFunc, options *metav1.CreateOptions) (runtime.Object, error) {
	if err := s.check(ctx, object, nil); err != nil {
		return nil, err
	}
	return s.REST.Create(ctx, object, validation, options)
}

// Update implements rest.Updater. The check receives the object to be stored, again on
// every retry after a conflict.
func (s *REST) Update(ctx context.Context, name string, objInfo rest.UpdatedObjectInfo, createValidation rest.ValidateObjectFunc,
	updateValidation rest.ValidateObjectUpdateFunc, forceAllowCreate bool, options *metav1.UpdateOptions,
) (runtime.Object, bool, error) {
	checked := rest.WrapUpdatedObjectInfo(objInfo, func(ctx context.Context, object, old runtime.Object) (runtime.Object, error) {
		if changesOwnersOnly(object, old) {
			return object, nil
		}
		return object, s.check(ctx, object, old)
	})
	return s.REST.Update(ctx, name, checked, createValidation, updateValidation, forceAllowCreate, options)
}

// changesOwnersOnly reports whether an update changes only what the garbage collector
// changes, which may delete any role.
func changesOwnersOnly(object, old runtime.Object) bool {
	object = object.DeepCopyObject()
	changed, err := meta.Accessor(object)
	if err != nil {
		return false
	}
	stored, err := meta.Accessor(old)
	if err != nil {
		return false
	}
	changed.SetOwnerReferences(stored.GetOwnerReferences())
	changed.SetFinalizers(stored.GetFinalizers())
	changed.SetManagedFields(stored.GetManagedFields())
	return equality.Semantic.DeepEqual(object, old)
}
