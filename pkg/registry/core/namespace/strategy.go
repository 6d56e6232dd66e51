// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package namespace is the REST storage of namespaces. A namespace is deleted in two steps:
// a delete marks it Terminating, and it is removed once spec.finalizers is empty.
package namespace

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/registry/generic"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	annexcorev1 "github.com/annex-dev/annex/pkg/apis/core/v1"
	"github.com/annex-dev/annex/pkg/apis/core/validation"
	"github.com/annex-dev/annex/pkg/registry/typed"
)

// strategy is that of the main endpoint.
type strategy struct {
	typed.BaseStrategy
}

// GetResetFields implements rest.ResetFieldsStrategy. A create may set spec.finalizers, so
// it is not among them.
func (strategy) GetResetFields() map[fieldpath.APIVersion]*fieldpath.Set {
	return typed.ResetFields(corev1.SchemeGroupVersion, "status")
}

// PrepareForCreate makes the namespace active and adds the finalizer of the namespace
// controller.
func (strategy) PrepareForCreate(_ context.Context, obj runtime.Object) {
	namespace := obj.(*corev1.Namespace)
	namespace.Status = corev1.NamespaceStatus{Phase: corev1.NamespaceActive}
	if !slices.Contains(namespace.Spec.Finalizers, corev1.FinalizerKubernetes) {
		namespace.Spec.Finalizers = append(namespace.Spec.Finalizers, corev1.FinalizerKubernetes)
	}
}

func (strategy) Validate(_ context.Context, obj runtime.Object) field.ErrorList {
	return validation.ValidateNamespace(obj.(*corev1.Namespace))
}

// Canonicalize sets the name label of a generated name, which defaulting could not know.
func (strategy) Canonicalize(obj runtime.Object) {
	annexcorev1.SetNameLabel(obj.(*corev1.Namespace))
}

func (strategy) PrepareForUpdate(_ context.Context, obj, old runtime.Object) {
	newNamespace, oldNamespace := obj.(*corev1.Namespace), old.(*corev1.Namespace)
	newNamespace.Spec.Finalizers = oldNamespace.Spec.Finalizers
	newNamespace.Status = oldNamespace.Status
}

func (strategy) ValidateUpdate(_ context.Context, obj, old runtime.Object) field.ErrorList {
	return validation.ValidateNamespaceUpdate(obj.(*corev1.Namespace), old.(*corev1.Namespace))
}

// statusStrategy is that of /status.
type statusStrategy struct {
	strategy
}

func (statusStrategy) GetResetFields() map[fieldpath.APIVersion]*fieldpath.Set {
	return typed.ResetFields(corev1.SchemeGroupVersion, "spec")
}

func (statusStrategy) PrepareForUpdate(_ context.Context, obj, old runtime.Object) {
	obj.(*corev1.Namespace).Spec = old.(*corev1.Namespace).Spec
}

func (statusStrategy) ValidateUpdate(_ context.Context, obj, old runtime.Object) field.ErrorList {
	return validation.ValidateNamespaceStatusUpdate(obj.(*corev1.Namespace), old.(*corev1.Namespace))
}

// finalizeStrategy is that of /finalize, the only way to change spec.finalizers.
type finalizeStrategy struct {
	strategy
}

func (finalizeStrategy) PrepareForUpdate(_ context.Context, obj, old runtime.Object) {
	obj.(*corev1.Namespace).Status = old.(*corev1.Namespace).Status
}

func (finalizeStrategy) ValidateUpdate(_ context.Context, obj, old runtime.Object) field.ErrorList {
	return validation.ValidateNamespaceFinalizeUpdate(obj.(*corev1.Namespace), old.(*corev1.Namespace))
}

// attrs returns what selectors match.
func attrs(obj runtime.Object) (labels.Set, fields.Set, error) {
	namespace, ok := obj.(*corev1.Namespace)
	if !ok {
		return nil, nil, fmt.Errorf("select namespaces: unexpected type %T", obj)
	}
	selectable := generic.AddObjectMetaFieldsSet(fields.Set{"status.phase": string(namespace.Status.Phase)}, &namespace.ObjectMeta, false)
	return namespace.Labels, selectable, nil
}
