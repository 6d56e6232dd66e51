// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package framework

import (
	"context"
	"fmt"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1apply "k8s.io/client-go/applyconfigurations/meta/v1"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	hostingapply "github.com/annex-dev/annex/pkg/generated/applyconfiguration/hosting/v1alpha1"
	hostingclient "github.com/annex-dev/annex/pkg/generated/clientset/versioned/typed/hosting/v1alpha1"
)

// ConditionWriter writes the condition of HostedResources that a controller owns.
type ConditionWriter struct {
	// Type is the type of the condition.
	Type string
	// FieldManager owns only the condition.
	FieldManager         string
	AnnexHostedResources hostingclient.HostedResourceInterface
}

// Get returns the present condition, nil if there is none.
func (w ConditionWriter) Get(hosted *hostingv1alpha1.HostedResource) *metav1.Condition {
	return meta.FindStatusCondition(hosted.Status.Conditions, w.Type)
}

// Write writes the condition, or removes it if it is nil. A HostedResource that does not
// exist is no error.
func (w ConditionWriter) Write(ctx context.Context, name string, condition *metav1.Condition) error {
	status := hostingapply.HostedResourceStatus()
	if condition != nil {
		status.WithConditions(ApplyCondition(*condition).WithType(w.Type))
	}
	_, err := w.AnnexHostedResources.ApplyStatus(ctx, hostingapply.HostedResource(name).WithStatus(status),
		metav1.ApplyOptions{FieldManager: w.FieldManager, Force: true})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("write condition %s of hosted resource %s: %w", w.Type, name, err)
	}
	return nil
}

// ApplyCondition returns a condition for server-side apply.
func ApplyCondition(condition metav1.Condition) *metav1apply.ConditionApplyConfiguration {
	return metav1apply.Condition().
		WithType(condition.Type).
		WithStatus(condition.Status).
		WithObservedGeneration(condition.ObservedGeneration).
		WithLastTransitionTime(condition.LastTransitionTime).
		WithReason(condition.Reason).
		WithMessage(condition.Message)
}

// SetTransitionTime sets the transition time: now, unless before had the same status. It
// reports whether the condition differs from before in anything except the time.
func SetTransitionTime(condition, before *metav1.Condition, now time.Time) (changed bool) {
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

// Shorten cuts a message to a number of bytes. Errors may quote stored data or what webhooks respond.
func Shorten(message string, most int) string {
	if len(message) <= most {
		return message
	}
	return strings.ToValidUTF8(message[:most-len("…")], "") + "…"
}
