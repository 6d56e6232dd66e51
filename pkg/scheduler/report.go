// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1apply "k8s.io/client-go/applyconfigurations/meta/v1"
	"k8s.io/klog/v2"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	hostingapply "github.com/annex-dev/annex/pkg/generated/applyconfiguration/hosting/v1alpha1"
	hostingclient "github.com/annex-dev/annex/pkg/generated/clientset/versioned/typed/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/scheduler/framework"
)

const (
	reasonUnschedulable = "Unschedulable"

	eventScheduled        = "Scheduled"
	eventFailedScheduling = "FailedScheduling"

	// What the API allows.
	maxNote    = 1024
	maxMessage = 32768
)

// bind places one HostedResource, that and no other of its name, on a Store. The
// server says in its condition Scheduled that it was placed.
func bind(ctx context.Context, annexHostedResources hostingclient.HostedResourceInterface, hosted *hostingv1alpha1.HostedResource, storeName string) error {
	_, err := annexHostedResources.Bind(ctx, hosted.Name, &hostingv1alpha1.HostedResourceBinding{
		ObjectMeta: metav1.ObjectMeta{Name: hosted.Name, UID: hosted.UID},
		StoreName:  storeName,
	}, metav1.CreateOptions{})
	return err
}

// reportScheduled records an event.
func (s *Scheduler) reportScheduled(resource *framework.Resource, best framework.StoreResult, decision framework.Decision) {
	placed := fmt.Sprintf("Placed on Store %s; ", best.Store)
	s.config.Events.Eventf(resource.HostedResource, nil, corev1.EventTypeNormal, eventScheduled, "Bind", "%s",
		placed+decision.Brief(maxNote-len(placed)))
}

// reportUnschedulable says why a resource has no Store, in its condition and in an
// event, if that is news.
func (s *Scheduler) reportUnschedulable(ctx context.Context, resource *framework.Resource, decision framework.Decision) {
	message := decision.Brief(maxMessage)
	said := meta.FindStatusCondition(resource.Status.Conditions, hostingv1alpha1.HostedResourceScheduled)
	if said != nil && said.Status == metav1.ConditionFalse && said.Message == message && said.ObservedGeneration == resource.Generation {
		return
	}
	s.config.Events.Eventf(resource.HostedResource, nil, corev1.EventTypeWarning, eventFailedScheduling, "Schedule", "%s", decision.Brief(maxNote))
	condition := metav1apply.Condition().
		WithType(hostingv1alpha1.HostedResourceScheduled).
		WithStatus(metav1.ConditionFalse).
		WithObservedGeneration(resource.Generation).
		WithLastTransitionTime(since(said)).
		WithReason(reasonUnschedulable).
		WithMessage(message)
	apply := hostingapply.HostedResource(resource.Name).WithUID(resource.UID).WithStatus(hostingapply.HostedResourceStatus().WithConditions(condition))
	_, err := s.config.AnnexHostedResources.ApplyStatus(ctx, apply, metav1.ApplyOptions{FieldManager: s.config.Name, Force: true})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		klog.FromContext(ctx).Error(err, "Saying why there is no Store failed, trying again")
		s.queue.backOff(resource.Name)
	}
}

// since is when a condition that stays False became so.
func since(said *metav1.Condition) metav1.Time {
	if said != nil && said.Status == metav1.ConditionFalse {
		return said.LastTransitionTime
	}
	return metav1.Now()
}
