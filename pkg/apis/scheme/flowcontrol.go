// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package scheme

import (
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Kubernetes' defaults.
const (
	defaultMatchingPrecedence       int32 = 1000
	defaultNominalConcurrencyShares int32 = 30
	defaultQueues                   int32 = 64
	defaultHandSize                 int32 = 8
	defaultQueueLengthLimit         int32 = 50
)

func addFlowControl(scheme *runtime.Scheme) error {
	addDefaults(scheme, &flowcontrolv1.FlowSchema{}, &flowcontrolv1.FlowSchemaList{}, func(schema *flowcontrolv1.FlowSchema) {
		orDefault(&schema.Spec.MatchingPrecedence, defaultMatchingPrecedence)
	})
	addDefaults(scheme, &flowcontrolv1.PriorityLevelConfiguration{}, &flowcontrolv1.PriorityLevelConfigurationList{}, setPriorityLevelDefaults)
	return flowcontrolv1.AddToScheme(scheme)
}

func setPriorityLevelDefaults(level *flowcontrolv1.PriorityLevelConfiguration) {
	if exempt := level.Spec.Exempt; exempt != nil {
		setDefault(&exempt.NominalConcurrencyShares, 0)
		setDefault(&exempt.LendablePercent, 0)
	}
	limited := level.Spec.Limited
	if limited == nil {
		return
	}
	setDefault(&limited.NominalConcurrencyShares, defaultNominalConcurrencyShares)
	setDefault(&limited.LendablePercent, 0)
	if queuing := limited.LimitResponse.Queuing; queuing != nil {
		orDefault(&queuing.Queues, defaultQueues)
		orDefault(&queuing.HandSize, defaultHandSize)
		orDefault(&queuing.QueueLengthLimit, defaultQueueLengthLimit)
	}
}

func orDefault(field *int32, value int32) {
	if *field == 0 {
		*field = value
	}
}
