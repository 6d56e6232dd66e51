// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package core

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/annex-dev/annex/pkg/apis/core/validation"
	"github.com/annex-dev/annex/pkg/apis/scheme"
	"github.com/annex-dev/annex/pkg/registry/typed"
	"github.com/annex-dev/annex/pkg/table"
)

var namespaces = typed.Resource{
	Kind:       corev1.SchemeGroupVersion.WithKind("Namespace"),
	ShortNames: []string{"ns"},
	Strategy:   mainNamespaceStrategy,
	Attrs: typed.Fields(func(namespace *corev1.Namespace) fields.Set {
		return fields.Set{"status.phase": string(namespace.Status.Phase)}
	}),
	Table: table.New(corev1.Resource("namespaces"),
		table.Name[*corev1.Namespace](),
		table.Column[*corev1.Namespace]{
			Name:        "Status",
			Description: "The status of the namespace",
			Value:       func(namespace *corev1.Namespace) any { return string(namespace.Status.Phase) },
		},
		table.Age[*corev1.Namespace](),
	),
	ReturnDeletedObject: true,
	// The last finalizer of both lists removes the namespace.
	ShouldDeleteDuringUpdate: func(ctx context.Context, key string, obj, existing runtime.Object) bool {
		namespace, ok := obj.(*corev1.Namespace)
		return ok && len(namespace.Spec.Finalizers) == 0 && genericregistry.ShouldDeleteDuringUpdate(ctx, key, obj, existing)
	},
}

// namespaceStrategy is the strategy of the main endpoint.
type namespaceStrategy struct {
	typed.ValidatedStrategy[*corev1.Namespace]
}

var mainNamespaceStrategy = namespaceStrategy{typed.Validated(typed.ClusterScoped, validation.ValidateNamespace, nil)}

// GetResetFields implements rest.ResetFieldsStrategy. A create may set spec.finalizers, so
// it is not among them.
func (namespaceStrategy) GetResetFields() map[fieldpath.APIVersion]*fieldpath.Set {
	return typed.ResetFields(corev1.SchemeGroupVersion, "status")
}

// PrepareForCreate makes the namespace active and adds the finalizer of the namespace
// controller.
func (namespaceStrategy) PrepareForCreate(_ context.Context, obj runtime.Object) {
	namespace := obj.(*corev1.Namespace)
	namespace.Status = corev1.NamespaceStatus{Phase: corev1.NamespaceActive}
	if !slices.Contains(namespace.Spec.Finalizers, corev1.FinalizerKubernetes) {
		namespace.Spec.Finalizers = append(namespace.Spec.Finalizers, corev1.FinalizerKubernetes)
	}
}

// Canonicalize sets the label with a generated name, which did not exist at defaulting.
func (namespaceStrategy) Canonicalize(obj runtime.Object) {
	scheme.Scheme.Default(obj)
}

func (namespaceStrategy) PrepareForUpdate(_ context.Context, obj, old runtime.Object) {
	newNamespace, oldNamespace := obj.(*corev1.Namespace), old.(*corev1.Namespace)
	newNamespace.Spec.Finalizers = oldNamespace.Spec.Finalizers
	newNamespace.Status = oldNamespace.Status
}

// namespaceStatusStrategy is the strategy of /status.
type namespaceStatusStrategy struct {
	namespaceStrategy
}

func (namespaceStatusStrategy) GetResetFields() map[fieldpath.APIVersion]*fieldpath.Set {
	return typed.ResetFields(corev1.SchemeGroupVersion, "spec")
}

func (namespaceStatusStrategy) PrepareForUpdate(_ context.Context, obj, old runtime.Object) {
	obj.(*corev1.Namespace).Spec = old.(*corev1.Namespace).Spec
}

func (namespaceStatusStrategy) ValidateUpdate(_ context.Context, obj, _ runtime.Object) field.ErrorList {
	return validation.ValidateNamespaceStatusUpdate(obj.(*corev1.Namespace))
}

// namespaceFinalizeStrategy is the strategy of /finalize, the only endpoint that changes spec.finalizers.
type namespaceFinalizeStrategy struct {
	namespaceStrategy
}

func (namespaceFinalizeStrategy) PrepareForUpdate(_ context.Context, obj, old runtime.Object) {
	obj.(*corev1.Namespace).Status = old.(*corev1.Namespace).Status
}

func (namespaceFinalizeStrategy) ValidateUpdate(_ context.Context, obj, _ runtime.Object) field.ErrorList {
	return validation.ValidateNamespaceFinalizeUpdate(obj.(*corev1.Namespace))
}
