// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package prioritylevelconfiguration is the REST storage of PriorityLevelConfigurations.
package prioritylevelconfiguration

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
	typed.SpecStatusStrategy[*flowcontrolv1.PriorityLevelConfiguration, flowcontrolv1.PriorityLevelConfigurationSpec, flowcontrolv1.PriorityLevelConfigurationStatus]
}

func newStrategy(typer runtime.ObjectTyper) strategy {
	return strategy{typed.SpecStatusStrategy[*flowcontrolv1.PriorityLevelConfiguration, flowcontrolv1.PriorityLevelConfigurationSpec, flowcontrolv1.PriorityLevelConfigurationStatus]{
		BaseStrategy: typed.ClusterScoped(typer),
		Version:      flowcontrolv1.SchemeGroupVersion,
		Spec: func(object *flowcontrolv1.PriorityLevelConfiguration) *flowcontrolv1.PriorityLevelConfigurationSpec {
			return &object.Spec
		},
		Status: func(object *flowcontrolv1.PriorityLevelConfiguration) *flowcontrolv1.PriorityLevelConfigurationStatus {
			return &object.Status
		},
	}}
}

func (strategy) Validate(_ context.Context, obj runtime.Object) field.ErrorList {
	return validation.ValidatePriorityLevelConfiguration(obj.(*flowcontrolv1.PriorityLevelConfiguration))
}

func (strategy) ValidateUpdate(_ context.Context, obj, old runtime.Object) field.ErrorList {
	return validation.ValidatePriorityLevelConfigurationUpdate(obj.(*flowcontrolv1.PriorityLevelConfiguration), old.(*flowcontrolv1.PriorityLevelConfiguration))
}

// statusStrategy is that of /status.
type statusStrategy struct {
	typed.StatusStrategy[*flowcontrolv1.PriorityLevelConfiguration, flowcontrolv1.PriorityLevelConfigurationSpec, flowcontrolv1.PriorityLevelConfigurationStatus]
}

func newStatusStrategy(typer runtime.ObjectTyper) statusStrategy {
	return statusStrategy{newStrategy(typer).ForStatus()}
}

func (statusStrategy) ValidateUpdate(_ context.Context, obj, _ runtime.Object) field.ErrorList {
	return validation.ValidatePriorityLevelConfigurationStatus(obj.(*flowcontrolv1.PriorityLevelConfiguration))
}
