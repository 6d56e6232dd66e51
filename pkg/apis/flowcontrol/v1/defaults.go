// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package v1

import (
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
)

// Kubernetes' defaults.
const (
	DefaultMatchingPrecedence       int32 = 1000
	DefaultNominalConcurrencyShares int32 = 30
	DefaultQueues                   int32 = 64
	DefaultHandSize                 int32 = 8
	DefaultQueueLengthLimit         int32 = 50
)

func addDefaults(scheme *runtime.Scheme) error {
	scheme.AddTypeDefaultingFunc(&flowcontrolv1.FlowSchema{}, func(obj any) { SetDefaultsFlowSchema(obj.(*flowcontrolv1.FlowSchema)) })
	scheme.AddTypeDefaultingFunc(&flowcontrolv1.FlowSchemaList{}, func(obj any) {
		for i := range obj.(*flowcontrolv1.FlowSchemaList).Items {
			SetDefaultsFlowSchema(&obj.(*flowcontrolv1.FlowSchemaList).Items[i])
		}
	})
	scheme.AddTypeDefaultingFunc(&flowcontrolv1.PriorityLevelConfiguration{}, func(obj any) {
		SetDefaultsPriorityLevelConfiguration(obj.(*flowcontrolv1.PriorityLevelConfiguration))
	})
	scheme.AddTypeDefaultingFunc(&flowcontrolv1.PriorityLevelConfigurationList{}, func(obj any) {
		for i := range obj.(*flowcontrolv1.PriorityLevelConfigurationList).Items {
			SetDefaultsPriorityLevelConfiguration(&obj.(*flowcontrolv1.PriorityLevelConfigurationList).Items[i])
		}
	})
	return nil
}

// SetDefaultsFlowSchema sets the matching precedence.
func SetDefaultsFlowSchema(schema *flowcontrolv1.FlowSchema) {
	orDefault(&schema.Spec.MatchingPrecedence, DefaultMatchingPrecedence)
}

// SetDefaultsPriorityLevelConfiguration sets shares and queues.
func SetDefaultsPriorityLevelConfiguration(level *flowcontrolv1.PriorityLevelConfiguration) {
	if exempt := level.Spec.Exempt; exempt != nil {
		pointerOrDefault(&exempt.NominalConcurrencyShares, 0)
		pointerOrDefault(&exempt.LendablePercent, 0)
	}
	limited := level.Spec.Limited
	if limited == nil {
		return
	}
	pointerOrDefault(&limited.NominalConcurrencyShares, DefaultNominalConcurrencyShares)
	pointerOrDefault(&limited.LendablePercent, 0)
	if queuing := limited.LimitResponse.Queuing; queuing != nil {
		orDefault(&queuing.Queues, DefaultQueues)
		orDefault(&queuing.HandSize, DefaultHandSize)
		orDefault(&queuing.QueueLengthLimit, DefaultQueueLengthLimit)
	}
}

func orDefault(field *int32, value int32) {
	if *field == 0 {
		*field = value
	}
}

// pointerOrDefault preserves an explicit zero.
func pointerOrDefault(field **int32, value int32) {
	if *field == nil {
		*field = ptr.To(value)
	}
}
