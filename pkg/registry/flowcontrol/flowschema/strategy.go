// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package flowschema is the REST storage of FlowSchemas.
package flowschema

import (
	"context"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/annex-dev/annex/pkg/apis/flowcontrol/validation"
	"github.com/annex-dev/annex/pkg/registry/typed"
)

// strategy is that of the main endpoint.
type strategy struct {
	typed.SpecStatusStrategy[*flowcontrolv1.FlowSchema, flowcontrolv1.FlowSchemaSpec, flowcontrolv1.FlowSchemaStatus]
}

func newStrategy(typer runtime.ObjectTyper) strategy {
	return strategy{typed.SpecStatusStrategy[*flowcontrolv1.FlowSchema, flowcontrolv1.FlowSchemaSpec, flowcontrolv1.FlowSchemaStatus]{
		BaseStrategy: typed.ClusterScoped(typer),
		Version:      flowcontrolv1.SchemeGroupVersion,
		Spec:         func(object *flowcontrolv1.FlowSchema) *flowcontrolv1.FlowSchemaSpec { return &object.Spec },
		Status:       func(object *flowcontrolv1.FlowSchema) *flowcontrolv1.FlowSchemaStatus { return &object.Status },
	}}
}

func (strategy) Validate(_ context.Context, obj runtime.Object) field.ErrorList {
	return validation.ValidateFlowSchema(obj.(*flowcontrolv1.FlowSchema))
}

func (strategy) ValidateUpdate(_ context.Context, obj, old runtime.Object) field.ErrorList {
	return validation.ValidateFlowSchemaUpdate(obj.(*flowcontrolv1.FlowSchema), old.(*flowcontrolv1.FlowSchema))
}

// statusStrategy is that of /status.
type statusStrategy struct {
	typed.StatusStrategy[*flowcontrolv1.FlowSchema, flowcontrolv1.FlowSchemaSpec, flowcontrolv1.FlowSchemaStatus]
}

func newStatusStrategy(typer runtime.ObjectTyper) statusStrategy {
	return statusStrategy{newStrategy(typer).ForStatus()}
}

func (statusStrategy) ValidateUpdate(_ context.Context, obj, _ runtime.Object) field.ErrorList {
	return validation.ValidateFlowSchemaStatus(obj.(*flowcontrolv1.FlowSchema))
}
