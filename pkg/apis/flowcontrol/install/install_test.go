// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package install_test

import (
	"testing"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	"k8s.io/apimachinery/pkg/api/apitesting/roundtrip"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"sigs.k8s.io/randfill"

	"github.com/annex-dev/annex/pkg/apis/flowcontrol/install"
	annexflowcontrolv1 "github.com/annex-dev/annex/pkg/apis/flowcontrol/v1"
)

// fuzzers fill objects with what decoding would have made of them.
func fuzzers(serializer.CodecFactory) []any {
	return []any{
		func(schema *flowcontrolv1.FlowSchema, c randfill.Continue) {
			c.FillNoCustom(schema)
			annexflowcontrolv1.SetDefaultsFlowSchema(schema)
		},
		func(level *flowcontrolv1.PriorityLevelConfiguration, c randfill.Continue) {
			c.FillNoCustom(level)
			annexflowcontrolv1.SetDefaultsPriorityLevelConfiguration(level)
		},
	}
}

func TestRoundTrip(t *testing.T) {
	t.Parallel()
	roundtrip.RoundTripTestForAPIGroup(t, install.Install, fuzzers)
	roundtrip.RoundTripProtobufTestForAPIGroup(t, install.Install, fuzzers)
}
