// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package conditions writes single conditions of HostedResources, each owned by one
// controller.
package conditions

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1apply "k8s.io/client-go/applyconfigurations/meta/v1"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	hostingapply "github.com/annex-dev/annex/pkg/generated/applyconfiguration/hosting/v1alpha1"
	hostingclient "github.com/annex-dev/annex/pkg/generated/clientset/versioned/typed/hosting/v1alpha1"
)

// Writer writes the condition of HostedResources that a controller owns.
type Writer struct {
	// Type is the type of the condition.
	Type string
	// FieldManager owns only the condition.
	FieldManager         string
	AnnexHostedResources hostingclient.HostedResourceInterface
}

// Get returns the present condition, nil if there is none.
func (w Writer) Get(hosted *hostingv1alpha1.HostedResource) *metav1.Condition {
	return meta.FindStatusCondition(hosted.Status.Conditions, w.Type)
}

// Write writes the condition, or removes it if it is nil. A HostedResource that does not
// exist is no error.
func (w Writer) Write(ctx context.Context, name string, condition *metav1.Condition) error {
	status := hostingapply.HostedResourceStatus()
	if condition != nil {
		status.WithConditions(metav1apply.Condition().
			WithType(w.Type).
			WithStatus(condition.Status).
			WithObservedGeneration(condition.ObservedGeneration).
			WithLastTransitionTime(condition.LastTransitionTime).
			WithReason(condition.Reason).
			WithMessage(condition.Message))
	}
	_, err := w.AnnexHostedResources.ApplyStatus(ctx, hostingapply.HostedResource(name).WithStatus(status),
		metav1.ApplyOptions{FieldManager: w.FieldManager, Force: true})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("write condition %s of hosted resource %s: %w", w.Type, name, err)
	}
	return nil
}

// SetTransitionTime sets the transition time: now, unless before had the same status. It
// reports whether the condition differs from before in anything except the time.
func SetTransitionTime(condition, before *metav1.Condition, now time.Time) (news bool) {
	condition.LastTransitionTime = metav1.NewTime(now)
	if before == nil {
		return true
	}
	if condition.Status == before.Status {
		condition.LastTransitionTime = before.LastTransitionTime
	}
	return *condition != *before
}

// IsUrgent reports whether a condition differs from before in more than its message.
func IsUrgent(condition, before *metav1.Condition) bool {
	return before == nil || before.Status != condition.Status || before.Reason != condition.Reason || before.ObservedGeneration != condition.ObservedGeneration
}
