// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package coordination

import (
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/features"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	featuregatetesting "k8s.io/component-base/featuregate/testing"

	"github.com/annex-dev/annex/pkg/registry/typed/typedtest"
	"github.com/annex-dev/annex/pkg/test/expect"
)

// Not parallel: it sets a feature gate.
func TestLeases(t *testing.T) {
	etcd := typedtest.NewStorage(t, coordinationv1.SchemeGroupVersion)
	leases, ctx := etcd.Endpoints(NewGroup(etcd)).REST("leases"), typedtest.Request(t, "ns")

	coordinated := func(name string) *coordinationv1.Lease {
		return &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "ns"},
			Spec: coordinationv1.LeaseSpec{
				HolderIdentity: new("me"), PreferredHolder: new("you"), Strategy: new(coordinationv1.OldestEmulationVersion),
			},
		}
	}
	t.Run("renewal of a deleted Lease", func(t *testing.T) {
		stored, err := typedtest.Update(ctx, leases, coordinated("a"))
		expect.NoError(t, err, "putting a lease that does not exist")
		expect.Equal(t, coordinationv1.LeaseSpec{HolderIdentity: new("me")}, stored.Spec, "spec while the feature is off")
		if etcd.Stored(t, "leases", "ns", "a") == nil {
			t.Error("the lease is not stored under /leases/ns/a")
		}
	})
	t.Run("update without resource version", func(t *testing.T) {
		if _, err := typedtest.Update(ctx, leases, coordinated("a")); !apierrors.IsInvalid(err) {
			t.Errorf("update without a resource version: %v, want invalid", err)
		}
	})
	t.Run("coordinated fields", func(t *testing.T) {
		featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.CoordinatedLeaderElection, true)
		stored, err := typedtest.Update(ctx, leases, coordinated("b"))
		expect.NoError(t, err, "putting")
		expect.Equal(t, coordinated("b").Spec, stored.Spec, "spec while the feature is on")
		featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.CoordinatedLeaderElection, false)
		stored.Spec.LeaseTransitions = new(int32(1))
		updated, err := typedtest.Update(ctx, leases, stored)
		expect.NoError(t, err, "update with the feature off again")
		if updated.Spec.PreferredHolder == nil || updated.Spec.Strategy == nil {
			t.Error("fields that were stored are lost when the feature goes off")
		}
	})
	t.Run("table", func(t *testing.T) {
		lease := coordinated("c")
		cells := typedtest.Cells(t, leases, &coordinationv1.LeaseList{Items: []coordinationv1.Lease{*lease, {}}})
		expect.Equal(t, [][]any{{"c", "me", "<unknown>"}, {"", "", "<unknown>"}}, cells, "cells, and without a holder")
	})
}
