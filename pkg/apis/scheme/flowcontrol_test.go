// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package scheme

import (
	"testing"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/apis/flowcontrol/bootstrap"

	"github.com/annex-dev/annex/pkg/test/expect"
)

func TestFlowSchemaDefaults(t *testing.T) {
	t.Parallel()
	list := &flowcontrolv1.FlowSchemaList{Items: make([]flowcontrolv1.FlowSchema, 2)}
	list.Items[1].Spec.MatchingPrecedence = 7
	Scheme.Default(list)
	if got := []int32{list.Items[0].Spec.MatchingPrecedence, list.Items[1].Spec.MatchingPrecedence}; got[0] != 1000 || got[1] != 7 {
		t.Errorf("precedences %v, want 1000 and 7", got)
	}
}

func TestPriorityLevelDefaults(t *testing.T) {
	t.Parallel()
	type limited = flowcontrolv1.LimitedPriorityLevelConfiguration
	type exempt = flowcontrolv1.ExemptPriorityLevelConfiguration
	type spec = flowcontrolv1.PriorityLevelConfigurationSpec
	type queuing = flowcontrolv1.QueuingConfiguration
	queue := func(queuing *queuing) flowcontrolv1.LimitResponse {
		return flowcontrolv1.LimitResponse{Type: flowcontrolv1.LimitResponseTypeQueue, Queuing: queuing}
	}
	tests := map[string]struct{ given, want spec }{
		"neither":       {spec{}, spec{}},
		"exempt":        {spec{Exempt: &exempt{}}, spec{Exempt: &exempt{NominalConcurrencyShares: new(int32(0)), LendablePercent: new(int32(0))}}},
		"without queue": {spec{Limited: &limited{}}, spec{Limited: &limited{NominalConcurrencyShares: new(int32(30)), LendablePercent: new(int32(0))}}},
		"a zero that was asked for": {
			spec{Limited: &limited{NominalConcurrencyShares: new(int32(0)), LendablePercent: new(int32(40))}},
			spec{Limited: &limited{NominalConcurrencyShares: new(int32(0)), LendablePercent: new(int32(40))}},
		},
		"queue": {
			spec{Limited: &limited{LimitResponse: queue(&queuing{})}},
			spec{Limited: &limited{
				NominalConcurrencyShares: new(int32(30)), LendablePercent: new(int32(0)),
				LimitResponse: queue(&queuing{Queues: 64, HandSize: 8, QueueLengthLimit: 50}),
			}},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			list := &flowcontrolv1.PriorityLevelConfigurationList{Items: []flowcontrolv1.PriorityLevelConfiguration{{Spec: test.given}}}
			Scheme.Default(list)
			expect.Equal(t, test.want, list.Items[0].Spec, "defaulted spec")
		})
	}
}

// The bootstrap objects need no defaults, so that they can be compared with stored ones.
func TestBootstrapObjectsNeedNoDefaults(t *testing.T) {
	t.Parallel()
	var objects []runtime.Object
	for _, schema := range append(bootstrap.MandatoryFlowSchemas, bootstrap.SuggestedFlowSchemas...) {
		objects = append(objects, schema)
	}
	for _, level := range append(bootstrap.MandatoryPriorityLevelConfigurations, bootstrap.SuggestedPriorityLevelConfigurations...) {
		objects = append(objects, level)
	}
	for _, object := range objects {
		defaulted := object.DeepCopyObject()
		Scheme.Default(defaulted)
		expect.Equal(t, object, defaulted, "defaults change an object")
	}
}
