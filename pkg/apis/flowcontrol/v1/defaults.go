// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package v1 has the defaults of flowcontrol.apiserver.k8s.io/v1.
package v1

import (
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"

	"github.com/annex-dev/annex/pkg/apis/meta/defaults"
)

// Kubernetes' defaults.
const (
	DefaultMatchingPrecedence       int32 = 1000
	DefaultNominalConcurrencyShares int32 = 30
	DefaultQueues                   int32 = 64
	DefaultHandSize                 int32 = 8
	DefaultQueueLengthLimit         int32 = 50
)

var schemeBuilder = runtime.NewSchemeBuilder(flowcontrolv1.AddToScheme, addDefaults)

// AddToScheme adds the types and their defaults to a scheme.
var AddToScheme = schemeBuilder.AddToScheme

func addDefaults(scheme *runtime.Scheme) error {
	defaults.Add(scheme, &flowcontrolv1.FlowSchema{}, &flowcontrolv1.FlowSchemaList{}, SetDefaultsFlowSchema)
	defaults.Add(scheme, &flowcontrolv1.PriorityLevelConfiguration{}, &flowcontrolv1.PriorityLevelConfigurationList{}, SetDefaultsPriorityLevelConfiguration)
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
