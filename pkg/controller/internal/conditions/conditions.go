// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package conditions has each controller say what it has to say in the status of a
// HostedResource beside the others.
package conditions

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1apply "k8s.io/client-go/applyconfigurations/meta/v1"

	hostingapply "github.com/annex-dev/annex/pkg/generated/applyconfiguration/hosting/v1alpha1"
	hostingclient "github.com/annex-dev/annex/pkg/generated/clientset/versioned/typed/hosting/v1alpha1"
)

// Apply makes one condition all that a field manager says in the status of a
// HostedResource, or nothing if it is nil, and leaves what others say to them.
func Apply(ctx context.Context, annexHostedResources hostingclient.HostedResourceInterface, name, fieldManager string, condition *metav1.Condition) error {
	status := hostingapply.HostedResourceStatus()
	if condition != nil {
		status.WithConditions(metav1apply.Condition().
			WithType(condition.Type).
			WithStatus(condition.Status).
			WithObservedGeneration(condition.ObservedGeneration).
			WithLastTransitionTime(condition.LastTransitionTime).
			WithReason(condition.Reason).
			WithMessage(condition.Message))
	}
	_, err := annexHostedResources.ApplyStatus(ctx, hostingapply.HostedResource(name).WithStatus(status),
		metav1.ApplyOptions{FieldManager: fieldManager, Force: true})
	return err
}
