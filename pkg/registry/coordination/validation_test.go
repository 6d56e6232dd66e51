// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package coordination

import (
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/annex-dev/annex/pkg/test/expect"
)

func TestValidateLease(t *testing.T) {
	t.Parallel()
	type spec = coordinationv1.LeaseSpec
	type strategy = coordinationv1.CoordinatedLeaseStrategy
	tests := []struct {
		name  string
		lease string
		spec  spec
		want  []string
	}{
		{name: "empty"},
		{name: "valid", spec: spec{
			HolderIdentity: new("me"), LeaseDurationSeconds: new(int32(1)), LeaseTransitions: new(int32(0)),
			Strategy: new(coordinationv1.OldestEmulationVersion), PreferredHolder: new("you"),
		}},
		{name: "someone else's strategy", spec: spec{Strategy: new(strategy("example.com/mine"))}},
		{name: "name", lease: "A", want: []string{`metadata.name: Invalid value: "A": a lowercase RFC 1123 subdomain`}},
		{
			name: "numbers", spec: spec{LeaseDurationSeconds: new(int32(0)), LeaseTransitions: new(int32(-1))},
			want: []string{
				"spec.leaseDurationSeconds: Invalid value: 0: must be greater than 0",
				"spec.leaseTransitions: Invalid value: -1: must be greater than or equal to 0",
			},
		},
		{
			name: "preferred holder without strategy", spec: spec{PreferredHolder: new("me")},
			want: []string{"spec.preferredHolder: Forbidden: may only be specified if `strategy` is defined"},
		},
		{
			name: "unknown strategy", spec: spec{Strategy: new(strategy("Mine"))},
			want: []string{`spec.strategy: Unsupported value: "Mine": supported values: "OldestEmulationVersion"`},
		},
		{
			name: "unqualified strategy", spec: spec{Strategy: new(strategy("example.com/"))},
			want: []string{
				`spec.strategy: Invalid value: "example.com/": name part must be non-empty`,
				`spec.strategy: Invalid value: "example.com/": name part must consist of`,
			},
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "ns", ResourceVersion: "1"}, Spec: test.spec}
			if test.lease != "" {
				lease.Name = test.lease
			}
			expect.FieldErrors(t, validateLease(lease), test.want...)
			if test.lease == "" {
				old := lease.DeepCopy()
				old.Spec = coordinationv1.LeaseSpec{}
				expect.FieldErrors(t, validateLeaseUpdate(lease, old), test.want...)
			}
		})
	}
}
