// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// checkLeader checks whether a replica runs the controllers: without one annex
// serves, and nothing that is published is kept right.
func checkLeader(ctx context.Context, e *environment) []finding {
	name := e.service.Lease()
	lease, err := e.main.CoordinationV1().Leases(e.service.Namespace).Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return []finding{fail(e.logs(), "there is no Lease %s/%s: no annex has started behind this main cluster yet", e.service.Namespace, name)}
	case err != nil:
		return []finding{fail(canI("get", "leases.coordination.k8s.io", e.service.Namespace), "Lease %s/%s cannot be read: %v", e.service.Namespace, name, err)}
	}
	holder := ptr.Deref(lease.Spec.HolderIdentity, "")
	if holder == "" {
		return []finding{fail(e.logs(), "no replica runs the controllers: the last one has given up the Lease %s/%s", e.service.Namespace, name)}
	}
	if lease.Spec.RenewTime == nil {
		return []finding{fail(e.logs(), "%s has never renewed the Lease %s/%s", holder, e.service.Namespace, name)}
	}
	age := e.now().Sub(lease.Spec.RenewTime.Time)
	if valid := time.Duration(ptr.Deref(lease.Spec.LeaseDurationSeconds, 0)) * time.Second; age > valid {
		return []finding{fail(e.logs(), "no replica runs the controllers: %s has not renewed its Lease for %s", holder, age.Round(time.Second))}
	}
	return []finding{ok("%s runs the controllers", holder)}
}
