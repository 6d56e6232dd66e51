// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package install_test

import (
	"testing"

	"k8s.io/apimachinery/pkg/api/apitesting/roundtrip"
	"k8s.io/apimachinery/pkg/runtime/serializer"

	"github.com/annex-dev/annex/pkg/apis/admissionregistration/install"
)

func TestRoundTrip(t *testing.T) {
	t.Parallel()
	none := func(serializer.CodecFactory) []any { return nil }
	roundtrip.RoundTripTestForAPIGroup(t, install.Install, none)
	roundtrip.RoundTripProtobufTestForAPIGroup(t, install.Install, none)
}
