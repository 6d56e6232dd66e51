// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package hosting

import (
	"context"
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/apis/hosting/validation"
	"github.com/annex-dev/annex/pkg/registry/typed"
)

// Reasons of the condition Scheduled that the server sets.
const (
	reasonBound       = "Bound"
	reasonMoved       = "Moved"
	reasonPreassigned = "Preassigned"
)

var errBeingDeleted = errors.New("it is being deleted")

// bindingREST is the endpoint hostedresources/binding. It binds HostedResources to Stores. Once a HostedResource is bound, only a Migration
// binds it to another Store.
type bindingREST struct {
	hostedResources *typed.SubresourceREST
	stores          rest.Getter
	migrations      rest.Lister
}

var (
	_ rest.NamedCreater                   = (*bindingREST)(nil)
	_ rest.SubresourceObjectMetaPreserver = (*bindingREST)(nil)
)

func newBindingREST(hostedResources *typed.REST, stores rest.Getter, migrations rest.Lister) *bindingREST {
	return &bindingREST{hostedResources: hostedResources.Subresource(bindingStrategy{typed.ClusterScoped}), stores: stores, migrations: migrations}
}

// New implements rest.Storage.
func (r *bindingREST) New() runtime.Object { return &v1alpha1.HostedResourceBinding{} }

// Destroy implements rest.Storage.
func (r *bindingREST) Destroy() {}

// PreserveRequestObjectMetaSystemFieldsOnSubresourceCreate keeps the UID of a request,
// which is a precondition.
func (r *bindingREST) PreserveRequestObjectMetaSystemFieldsOnSubresourceCreate() bool { return true }

// Create implements rest.NamedCreater. It is idempotent, so that schedulers can retry.
func (r *bindingREST) Create(ctx context.Context, name string, obj runtime.Object, validate rest.ValidateObjectFunc, options *metav1.CreateOptions) (runtime.Object, error) {
	binding, ok := obj.(*v1alpha1.HostedResourceBinding)
	if !ok {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("a HostedResourceBinding is needed to place a HostedResource, not %T", obj))
	}
	if binding.Name == "" {
		binding.Name = name
	}
	if errs := validation.ValidateHostedResourceBinding(binding, name); len(errs) > 0 {
		return nil, apierrors.NewInvalid(v1alpha1.SchemeGroupVersion.WithKind("HostedResourceBinding").GroupKind(), name, errs)
	}
	if validate != nil {
		if err := validate(ctx, binding.DeepCopyObject()); err != nil {
			return nil, err
		}
	}
	place := rest.DefaultUpdatedObjectInfo(nil, func(ctx context.Context, _, old runtime.Object) (runtime.Object, error) {
		return r.place(ctx, old.(*v1alpha1.HostedResource), binding)
	})
	updated, _, err := r.hostedResources.Update(ctx, name, place, nil, nil, false, &metav1.UpdateOptions{DryRun: options.DryRun})
	if err != nil {
		return nil, err
	}
	answer := binding.DeepCopy()
	answer.ObjectMeta = metav1.ObjectMeta{Name: name, UID: updated.(*v1alpha1.HostedResource).UID}
	return answer, nil
}

// place returns the bound HostedResource. It is called again after a conflict.
func (r *bindingREST) place(ctx context.Context, hosted *v1alpha1.HostedResource, binding *v1alpha1.HostedResourceBinding) (runtime.Object, error) {
	conflict := func(err error) error {
		return apierrors.NewConflict(v1alpha1.Resource("hostedresources/binding"), hosted.Name, err)
	}
	switch {
	case binding.UID != "" && binding.UID != hosted.UID:
		return nil, conflict(fmt.Errorf("it has the UID %s, not %s", hosted.UID, binding.UID))
	case binding.ResourceVersion != "" && binding.ResourceVersion != hosted.ResourceVersion:
		return nil, conflict(errors.New("it has been changed"))
	case !hosted.DeletionTimestamp.IsZero():
		return nil, conflict(errBeingDeleted)
	case hosted.Spec.StoreName == binding.StoreName:
		return hosted.DeepCopy(), nil
	case hosted.Spec.StoreName != "" && binding.MigrationUID == "":
		return nil, conflict(fmt.Errorf("it is on the Store %q already: only a Migration moves it", hosted.Spec.StoreName))
	case hosted.Spec.StoreName != "":
		switching, err := r.isSwitching(ctx, hosted, binding)
		if err != nil {
			return nil, err
		}
		if !switching {
			return nil, conflict(fmt.Errorf("no Migration with the UID %s switches it from the Store %q to %q", binding.MigrationUID, hosted.Spec.StoreName, binding.StoreName))
		}
	}
	if err := r.checkStore(ctx, hosted.Name, binding.StoreName); err != nil {
		return nil, err
	}
	placed := hosted.DeepCopy()
	placed.Spec.StoreName = binding.StoreName
	return placed, nil
}

// isSwitching reports whether a binding belongs to a Migration that switches the HostedResource
// to the Store of the binding.
func (r *bindingREST) isSwitching(ctx context.Context, hosted *v1alpha1.HostedResource, binding *v1alpha1.HostedResourceBinding) (bool, error) {
	list, err := r.migrations.List(ctx, &internalversion.ListOptions{})
	if err != nil {
		return false, fmt.Errorf("list Migrations: %w", err)
	}
	return slices.ContainsFunc(list.(*v1alpha1.MigrationList).Items, func(migration v1alpha1.Migration) bool {
		return migration.UID == binding.MigrationUID && migration.Status.Phase == v1alpha1.MigrationSwitching &&
			migration.Spec.Resource == hosted.Name && migration.Spec.StoreName == binding.StoreName &&
			migration.Status.FromStoreName == hosted.Spec.StoreName
	}), nil
}

// checkStore rejects a Store that does not exist or is being deleted.
func (r *bindingREST) checkStore(ctx context.Context, name, storeName string) error {
	found, err := r.stores.Get(ctx, storeName, &metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return apierrors.NewInvalid(v1alpha1.SchemeGroupVersion.WithKind("HostedResourceBinding").GroupKind(), name,
			field.ErrorList{field.NotFound(field.NewPath("storeName"), storeName)})
	}
	if err != nil {
		return fmt.Errorf("read the Store %q: %w", storeName, err)
	}
	if !found.(*v1alpha1.Store).DeletionTimestamp.IsZero() {
		return apierrors.NewConflict(v1alpha1.Resource("stores"), storeName, errBeingDeleted)
	}
	return nil
}

// setScheduled sets the condition Scheduled to True.
func setScheduled(hosted *v1alpha1.HostedResource, reason, message string) {
	meta.SetStatusCondition(&hosted.Status.Conditions, metav1.Condition{
		Type:               v1alpha1.HostedResourceScheduled,
		Status:             metav1.ConditionTrue,
		ObservedGeneration: hosted.Generation,
		Reason:             reason,
		Message:            message,
	})
}

// bindingStrategy stores the HostedResource that place returns.
type bindingStrategy struct {
	typed.BaseStrategy
}

// PrepareForUpdate sets generation and condition.
func (bindingStrategy) PrepareForUpdate(_ context.Context, obj, old runtime.Object) {
	placed, before := obj.(*v1alpha1.HostedResource), old.(*v1alpha1.HostedResource)
	if placed.Spec.StoreName != before.Spec.StoreName {
		placed.Generation = before.Generation + 1
		if before.Spec.StoreName == "" {
			setScheduled(placed, reasonBound, fmt.Sprintf("Placed on Store %q", placed.Spec.StoreName))
		} else {
			setScheduled(placed, reasonMoved, fmt.Sprintf("Moved from Store %q to %q", before.Spec.StoreName, placed.Spec.StoreName))
		}
	}
}
