// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package conditions has each controller say what it has to say in the status of a
// HostedResource beside the others.
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

// Writer writes the one condition of HostedResources that a controller owns.
type Writer struct {
	// Type is that of the condition.
	Type string
	// FieldManager owns it, and nothing else.
	FieldManager         string
	AnnexHostedResources hostingclient.HostedResourceInterface
}

// Get is the condition as it was written last, nil if there is none.
func (w Writer) Get(hosted *hostingv1alpha1.HostedResource) *metav1.Condition {
	return meta.FindStatusCondition(hosted.Status.Conditions, w.Type)
}

// Write writes the condition, or takes it away if it is nil. It is no error that the
// HostedResource is gone.
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

// SetTransitionTime dates a condition: since when its status is what it is, which is now unless
// before, the one that it replaces, had the same. It reports whether anything else
// than the time is new.
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

// IsUrgent reports whether a condition says more than another message than before, the
// one that it replaces.
func IsUrgent(condition, before *metav1.Condition) bool {
	return before == nil || before.Status != condition.Status || before.Reason != condition.Reason || before.ObservedGeneration != condition.ObservedGeneration
}
