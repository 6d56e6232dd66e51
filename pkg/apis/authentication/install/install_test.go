// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package install_test

import (
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/api/apitesting/roundtrip"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"sigs.k8s.io/randfill"

	"github.com/annex-dev/annex/pkg/apis/authentication/install"
	annexauthenticationv1 "github.com/annex-dev/annex/pkg/apis/authentication/v1"
)

func TestRoundTrip(t *testing.T) {
	t.Parallel()
	fuzzers := func(serializer.CodecFactory) []any {
		return []any{
			func(request *authenticationv1.TokenRequest, c randfill.Continue) {
				c.FillNoCustom(request)
				annexauthenticationv1.SetDefaultsTokenRequest(request)
			},
		}
	}
	roundtrip.RoundTripTestForAPIGroup(t, install.Install, fuzzers)
	roundtrip.RoundTripProtobufTestForAPIGroup(t, install.Install, fuzzers)
}
