// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package install_test

import (
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/apitesting/roundtrip"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"sigs.k8s.io/randfill"

	"github.com/annex-dev/annex/pkg/apis/rbac/install"
	annexrbacv1 "github.com/annex-dev/annex/pkg/apis/rbac/v1"
)

// fuzzers fill objects with what decoding would have made of them.
func fuzzers(serializer.CodecFactory) []any {
	return []any{
		func(binding *rbacv1.RoleBinding, c randfill.Continue) {
			c.FillNoCustom(binding)
			annexrbacv1.SetDefaultsRoleBinding(binding)
		},
		func(binding *rbacv1.ClusterRoleBinding, c randfill.Continue) {
			c.FillNoCustom(binding)
			annexrbacv1.SetDefaultsClusterRoleBinding(binding)
		},
	}
}

func TestRoundTrip(t *testing.T) {
	t.Parallel()
	roundtrip.RoundTripTestForAPIGroup(t, install.Install, fuzzers)
	roundtrip.RoundTripProtobufTestForAPIGroup(t, install.Install, fuzzers)
}
