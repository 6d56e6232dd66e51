// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package flowschema is the REST storage of FlowSchemas.
package flowschema

import (
	"context"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/annex-dev/annex/pkg/apis/flowcontrol/validation"
	"github.com/annex-dev/annex/pkg/registry/typed"
)

// strategy is that of the main endpoint: it writes spec and metadata.
type strategy struct {
	typed.BaseStrategy
}

// GetResetFields implements rest.ResetFieldsStrategy.
func (strategy) GetResetFields() map[fieldpath.APIVersion]*fieldpath.Set {
	return typed.ResetFields(flowcontrolv1.SchemeGroupVersion, "status")
}

func (strategy) PrepareForCreate(_ context.Context, obj runtime.Object) {
	schema := obj.(*flowcontrolv1.FlowSchema)
	schema.Status = flowcontrolv1.FlowSchemaStatus{}
	schema.Generation = 1
}

func (strategy) Validate(_ context.Context, obj runtime.Object) field.ErrorList {
	return validation.ValidateFlowSchema(obj.(*flowcontrolv1.FlowSchema))
}

// PrepareForUpdate raises the generation of another spec: by it one can tell later
// whether somebody ever changed what annex made.
func (strategy) PrepareForUpdate(_ context.Context, obj, old runtime.Object) {
	updated, before := obj.(*flowcontrolv1.FlowSchema), old.(*flowcontrolv1.FlowSchema)
	updated.Status = before.Status
	if !apiequality.Semantic.DeepEqual(updated.Spec, before.Spec) {
		updated.Generation = before.Generation + 1
	}
}

func (strategy) ValidateUpdate(_ context.Context, obj, old runtime.Object) field.ErrorList {
	return validation.ValidateFlowSchemaUpdate(obj.(*flowcontrolv1.FlowSchema), old.(*flowcontrolv1.FlowSchema))
}

// statusStrategy is that of /status: it writes status and nothing else.
type statusStrategy struct {
	strategy
}

// GetResetFields implements rest.ResetFieldsStrategy.
func (statusStrategy) GetResetFields() map[fieldpath.APIVersion]*fieldpath.Set {
	return typed.ResetFields(flowcontrolv1.SchemeGroupVersion, "metadata", "spec")
}

func (statusStrategy) PrepareForUpdate(_ context.Context, obj, old runtime.Object) {
	updated, before := obj.(*flowcontrolv1.FlowSchema), old.(*flowcontrolv1.FlowSchema)
	updated.Spec = before.Spec
	metav1.ResetObjectMetaForStatus(&updated.ObjectMeta, &before.ObjectMeta)
}

func (statusStrategy) ValidateUpdate(_ context.Context, obj, _ runtime.Object) field.ErrorList {
	return validation.ValidateFlowSchemaStatus(obj.(*flowcontrolv1.FlowSchema))
}
