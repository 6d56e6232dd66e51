// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package retention

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/controller/framework"
	hostingapply "github.com/annex-dev/annex/pkg/generated/applyconfiguration/hosting/v1alpha1"
)

// Reasons of the conditions, and of the events.
const (
	reasonNotDefined    = "NotDefined"
	reasonNotServed     = "NotServed"
	reasonFieldNotFound = "FieldNotFound"
	reasonFieldsFound   = "FieldsFound"

	reasonListFailed     = "ListFailed"
	reasonArchiveFailed  = "ArchiveFailed"
	reasonDeletionFailed = "DeletionFailed"
	reasonInProgress     = "InProgress"
	reasonCompleted      = "Completed"
	reasonDryRun         = "DryRun"

	reasonArchiveNotConfigured = "ArchiveNotConfigured"
)

// maxMessage is the maximum length of a message, so that an event accepts it.
const maxMessage = 1000

// retentionSpec shortens the type's name.
type retentionSpec = hostingv1alpha1.Retention

// workOf returns the work of a HostedResource. Its status continues the one that the previous leader
// wrote.
func (c *Controller) workOf(resource *hosted) *work {
	c.mu.Lock()
	defer c.mu.Unlock()
	w := c.work[resource.Name]
	if w == nil || w.hosted != "" && w.hosted != resource.UID {
		w = &work{name: resource.Name}
		w.valid = meta.FindStatusCondition(resource.Status.Conditions, hostingv1alpha1.HostedResourceRetentionValid).DeepCopy()
		w.succeeded = meta.FindStatusCondition(resource.Status.Conditions, hostingv1alpha1.HostedResourceRetentionSucceeded).DeepCopy()
		if resource.Status.Retention != nil {
			resource.Status.Retention.DeepCopyInto(&w.status)
		}
		c.work[resource.Name] = w
	}
	return w
}

// forget removes the work, metrics and status of a HostedResource without a retention.
func (c *Controller) forget(ctx context.Context, name string, resource *hosted) error {
	c.mu.Lock()
	delete(c.work, name)
	c.mu.Unlock()
	forgetMetrics(name)
	if resource == nil || resource.Status.Retention == nil && meta.FindStatusCondition(resource.Status.Conditions, hostingv1alpha1.HostedResourceRetentionValid) == nil {
		return nil
	}
	return c.apply(ctx, name, hostingapply.HostedResourceStatus())
}

// validCondition is the condition RetentionValid.
func validCondition(resource *hosted, crd *definition) metav1.Condition {
	condition := metav1.Condition{Type: hostingv1alpha1.HostedResourceRetentionValid, Status: metav1.ConditionUnknown, ObservedGeneration: resource.Generation}
	if crd == nil {
		condition.Reason, condition.Message = reasonNotDefined, fmt.Sprintf("There is no CustomResourceDefinition %q", resource.Name)
		return condition
	}
	version := versionOf(crd)
	if version == nil {
		condition.Reason, condition.Message = reasonNotServed, "The CustomResourceDefinition has no served version"
		return condition
	}
	if problems := checkFields(resource.Spec.Retention, crd, version); len(problems) > 0 {
		condition.Status, condition.Reason = metav1.ConditionFalse, reasonFieldNotFound
		condition.Message = framework.Shorten(fmt.Sprintf("Nothing is deleted, because of version %s: %s", version.Name, strings.Join(problems, "; ")), maxMessage)
		return condition
	}
	condition.Status, condition.Reason = metav1.ConditionTrue, reasonFieldsFound
	condition.Message = fmt.Sprintf("Version %s has the fields that the rules read", version.Name)
	return condition
}

// setValid sets the condition RetentionValid, and records an event when it becomes False.
func (c *Controller) setValid(w *work, resource *hosted, condition metav1.Condition) {
	news := framework.SetTransitionTime(&condition, w.valid, c.now())
	w.valid = &condition
	if news && condition.Status == metav1.ConditionFalse {
		c.config.Events.Eventf(resource, nil, corev1.EventTypeWarning, condition.Reason, "Check", "%s", condition.Message)
	}
}

// setSucceeded sets the condition RetentionSucceeded, and records an event when it becomes False.
func (c *Controller) setSucceeded(w *work, succeeded bool, reason, message string) {
	condition := metav1.Condition{
		Type: hostingv1alpha1.HostedResourceRetentionSucceeded, Status: metav1.ConditionFalse,
		ObservedGeneration: w.generation, Reason: reason, Message: framework.Shorten(message, maxMessage),
	}
	if succeeded {
		condition.Status = metav1.ConditionTrue
	}
	before := w.succeeded
	framework.SetTransitionTime(&condition, before, c.now())
	w.succeeded = &condition
	if resource, err := c.getHosted(w.name); err == nil && !succeeded && (before == nil || before.Status != condition.Status || before.Reason != reason) {
		c.config.Events.Eventf(resource, nil, corev1.EventTypeWarning, reason, "Delete", "%s", condition.Message)
	}
}

// endPlan ends a plan whose objects have all had their turn, or reports how far it is.
func (c *Controller) endPlan(w *work) {
	if total := len(w.plan.targets); w.position < total {
		c.setSucceeded(w, true, reasonInProgress, fmt.Sprintf("Deleted %d of %d objects", w.result.deleted, total))
		return
	}
	message := fmt.Sprintf("Deleted %s", objects(w.result.deleted)) + w.notes()
	if w.result.failed > 0 {
		c.setSucceeded(w, false, reasonDeletionFailed, fmt.Sprintf("%s could not be deleted, the first because of: %s. %s", objects(w.result.failed), w.result.failure, message))
	} else {
		c.setSucceeded(w, true, reasonCompleted, message)
	}
	w.plan = nil
	c.report(w)
}

// endDryRun reports what a plan would delete.
func (c *Controller) endDryRun(w *work) {
	message := fmt.Sprintf("Would delete %s", objects(int64(len(w.plan.targets))))
	if !w.plan.complete {
		message += ", and more"
	}
	message += w.notes()
	w.news.clear()
	for _, t := range w.plan.targets {
		w.news.add(w.rules[t.rule()].name, nameOf(t))
	}
	if w.news.String() == w.news.reported {
		w.news.clear()
	}
	c.setSucceeded(w, true, reasonDryRun, message)
	w.plan = nil
	c.report(w)
}

// notes lists what was not deleted.
func (w *work) notes() string {
	var notes strings.Builder
	if w.plan.held > 0 {
		fmt.Fprintf(&notes, "; %s with dependents that block the deletion", objects(w.plan.held))
	}
	if w.result.changed > 0 {
		fmt.Fprintf(&notes, "; %s changed meanwhile", objects(w.result.changed))
	}
	for i, rule := range w.plan.rules {
		switch {
		case rule.matched == 0 && w.plan.objects > 0:
			fmt.Fprintf(&notes, "; rule %s applies to none of %s", w.rules[i].name, objects(w.plan.objects))
		case rule.skipped > 0:
			fmt.Fprintf(&notes, "; rule %s skipped %s without a usable time, label or owner", w.rules[i].name, objects(rule.skipped))
		}
	}
	return notes.String()
}

func objects(count int64) string {
	if count == 1 {
		return "1 object"
	}
	return fmt.Sprintf("%d objects", count)
}

// write writes the status if it changed.
func (c *Controller) write(ctx context.Context, w *work, resource *hosted) error {
	now := hostingv1alpha1.HostedResourceStatus{Retention: w.status.DeepCopy()}
	status := hostingapply.HostedResourceStatus().WithRetention(statusApply(now.Retention))
	for _, condition := range []*metav1.Condition{w.valid, w.succeeded} {
		if condition != nil {
			now.Conditions = append(now.Conditions, *condition)
			status.WithConditions(framework.ApplyCondition(*condition))
		}
	}
	if equality.Semantic.DeepEqual(w.written, &now) {
		return nil
	}
	if err := c.apply(ctx, resource.Name, status); err != nil {
		return err
	}
	w.written = &now
	return nil
}

func statusApply(status *hostingv1alpha1.RetentionStatus) *hostingapply.RetentionStatusApplyConfiguration {
	apply := hostingapply.RetentionStatus().WithDeleted(status.Deleted).WithArchived(status.Archived)
	apply.LastRunTime, apply.NextRunTime = status.LastRunTime, status.NextRunTime
	for _, rule := range status.Rules {
		apply.WithRules(hostingapply.RetentionRuleStatus().
			WithName(rule.Name).WithMatched(rule.Matched).WithDue(rule.Due).WithSkipped(rule.Skipped).WithDeleted(rule.Deleted).WithExamples(rule.Examples...))
	}
	return apply
}

// apply writes the part of the status that the controller owns.
func (c *Controller) apply(ctx context.Context, name string, status *hostingapply.HostedResourceStatusApplyConfiguration) error {
	_, err := c.config.AnnexHostedResources.ApplyStatus(ctx, hostingapply.HostedResource(name).WithStatus(status),
		metav1.ApplyOptions{FieldManager: ControllerName, Force: true})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("write the retention's status of hosted resource %s: %w", name, err)
	}
	return nil
}
