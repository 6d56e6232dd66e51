// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package flowcontrol

import (
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/annex-dev/annex/pkg/apis/flowcontrol/validation"
	"github.com/annex-dev/annex/pkg/registry/typed"
	"github.com/annex-dev/annex/pkg/table"
)

type (
	priorityLevel       = flowcontrolv1.PriorityLevelConfiguration
	priorityLevelSpec   = flowcontrolv1.PriorityLevelConfigurationSpec
	priorityLevelColumn = table.Column[*priorityLevel]
)

var queuingDoc = flowcontrolv1.QueuingConfiguration{}.SwaggerDoc()

var priorityLevels = typed.Resource{
	Kind: flowcontrolv1.SchemeGroupVersion.WithKind("PriorityLevelConfiguration"),
	Strategy: typed.SpecStatusStrategy[*priorityLevel]{
		ValidatedStrategy: typed.Validated(typed.ClusterScoped, validation.ValidatePriorityLevelConfiguration, nil),
		ValidateStatusUpdateFunc: func(updated, _ *priorityLevel) field.ErrorList {
			return validation.ValidatePriorityLevelConfigurationStatus(updated)
		},
	},
	Table: table.New(flowcontrolv1.Resource("prioritylevelconfigurations"),
		table.Name[*priorityLevel](),
		priorityLevelColumn{
			Name:        "Type",
			Description: priorityLevelSpec{}.SwaggerDoc()["type"],
			Value:       func(level *priorityLevel) any { return string(level.Spec.Type) },
		},
		priorityLevelColumn{
			Name:        "NominalConcurrencyShares",
			Description: flowcontrolv1.LimitedPriorityLevelConfiguration{}.SwaggerDoc()["nominalConcurrencyShares"],
			Value:       shares,
		},
		priorityLevelColumn{
			Name:        "Queues",
			Description: queuingDoc["queues"],
			Value:       ofQueuing(func(queuing *flowcontrolv1.QueuingConfiguration) int32 { return queuing.Queues }),
		},
		priorityLevelColumn{
			Name:        "HandSize",
			Description: queuingDoc["handSize"],
			Value:       ofQueuing(func(queuing *flowcontrolv1.QueuingConfiguration) int32 { return queuing.HandSize }),
		},
		priorityLevelColumn{
			Name:        "QueueLengthLimit",
			Description: queuingDoc["queueLengthLimit"],
			Value:       ofQueuing(func(queuing *flowcontrolv1.QueuingConfiguration) int32 { return queuing.QueueLengthLimit }),
		},
		table.Age[*priorityLevel](),
	),
}

func shares(level *priorityLevel) any {
	if level.Spec.Limited == nil {
		return table.None
	}
	return int64(ptr.Deref(level.Spec.Limited.NominalConcurrencyShares, 0))
}

// ofQueuing returns the cell of a number of a level with queues.
func ofQueuing(number func(*flowcontrolv1.QueuingConfiguration) int32) func(*priorityLevel) any {
	return func(level *priorityLevel) any {
		if level.Spec.Limited == nil || level.Spec.Limited.LimitResponse.Queuing == nil {
			return table.None
		}
		return int64(number(level.Spec.Limited.LimitResponse.Queuing))
	}
}
