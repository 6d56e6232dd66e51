// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package prioritylevelconfiguration is the REST storage of PriorityLevelConfigurations.
package prioritylevelconfiguration

import (
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/annex-dev/annex/pkg/apis/flowcontrol/validation"
	"github.com/annex-dev/annex/pkg/registry/table"
	"github.com/annex-dev/annex/pkg/registry/typed"
)

// Resource describes PriorityLevelConfigurations.
func Resource(typer runtime.ObjectTyper) typed.Resource {
	strategy := typed.SpecStatusStrategy[*flowcontrolv1.PriorityLevelConfiguration, flowcontrolv1.PriorityLevelConfigurationSpec, flowcontrolv1.PriorityLevelConfigurationStatus]{
		ValidatedStrategy: typed.Validated(typed.ClusterScoped(typer),
			validation.ValidatePriorityLevelConfiguration, validation.ValidatePriorityLevelConfigurationUpdate),
		ValidateStatusUpdateFunc: func(updated, _ *flowcontrolv1.PriorityLevelConfiguration) field.ErrorList {
			return validation.ValidatePriorityLevelConfigurationStatus(updated)
		},
		Version: flowcontrolv1.SchemeGroupVersion,
		Spec: func(object *flowcontrolv1.PriorityLevelConfiguration) *flowcontrolv1.PriorityLevelConfigurationSpec {
			return &object.Spec
		},
		Status: func(object *flowcontrolv1.PriorityLevelConfiguration) *flowcontrolv1.PriorityLevelConfigurationStatus {
			return &object.Status
		},
	}
	return typed.Resource{
		Kind:     flowcontrolv1.SchemeGroupVersion.WithKind("PriorityLevelConfiguration"),
		Strategy: strategy,
		Status:   strategy.ForStatus(),
		Table:    tableConvertor,
	}
}

type column = table.Column[*flowcontrolv1.PriorityLevelConfiguration]

var queuingDoc = flowcontrolv1.QueuingConfiguration{}.SwaggerDoc()

var tableConvertor = table.New(flowcontrolv1.Resource("prioritylevelconfigurations"),
	table.Name[*flowcontrolv1.PriorityLevelConfiguration](),
	column{
		Name:        "Type",
		Description: flowcontrolv1.PriorityLevelConfigurationSpec{}.SwaggerDoc()["type"],
		Value:       func(level *flowcontrolv1.PriorityLevelConfiguration) any { return string(level.Spec.Type) },
	},
	column{
		Name:        "NominalConcurrencyShares",
		Description: flowcontrolv1.LimitedPriorityLevelConfiguration{}.SwaggerDoc()["nominalConcurrencyShares"],
		Value:       shares,
	},
	column{
		Name:        "Queues",
		Description: queuingDoc["queues"],
		Value:       ofQueuing(func(queuing *flowcontrolv1.QueuingConfiguration) int32 { return queuing.Queues }),
	},
	column{
		Name:        "HandSize",
		Description: queuingDoc["handSize"],
		Value:       ofQueuing(func(queuing *flowcontrolv1.QueuingConfiguration) int32 { return queuing.HandSize }),
	},
	column{
		Name:        "QueueLengthLimit",
		Description: queuingDoc["queueLengthLimit"],
		Value:       ofQueuing(func(queuing *flowcontrolv1.QueuingConfiguration) int32 { return queuing.QueueLengthLimit }),
	},
	table.Age[*flowcontrolv1.PriorityLevelConfiguration](),
)

func shares(level *flowcontrolv1.PriorityLevelConfiguration) any {
	if level.Spec.Limited == nil {
		return table.None
	}
	return int64(ptr.Deref(level.Spec.Limited.NominalConcurrencyShares, 0))
}

// ofQueuing returns the cell of a number of a level with queues.
func ofQueuing(number func(*flowcontrolv1.QueuingConfiguration) int32) func(*flowcontrolv1.PriorityLevelConfiguration) any {
	return func(level *flowcontrolv1.PriorityLevelConfiguration) any {
		if level.Spec.Limited == nil || level.Spec.Limited.LimitResponse.Queuing == nil {
			return table.None
		}
		return int64(number(level.Spec.Limited.LimitResponse.Queuing))
	}
}
