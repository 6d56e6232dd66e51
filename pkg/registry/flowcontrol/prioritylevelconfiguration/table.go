// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package prioritylevelconfiguration

import (
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	"k8s.io/utils/ptr"

	"github.com/annex-dev/annex/pkg/registry/table"
)

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

// ofQueuing is the cell of a number that only a level with queues has.
func ofQueuing(number func(*flowcontrolv1.QueuingConfiguration) int32) func(*flowcontrolv1.PriorityLevelConfiguration) any {
	return func(level *flowcontrolv1.PriorityLevelConfiguration) any {
		if level.Spec.Limited == nil || level.Spec.Limited.LimitResponse.Queuing == nil {
			return table.None
		}
		return int64(number(level.Spec.Limited.LimitResponse.Queuing))
	}
}
