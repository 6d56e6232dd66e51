// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package namespace

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"

	"github.com/annex-dev/annex/pkg/controller/framework"
)

// maxMessage bounds a message, so that the namespace can be stored also with a hundred
// failing resources.
const maxMessage = 4096

// setConditions sets the conditions with the types and reasons of
// kube-controller-manager, and reports whether any changed.
func setConditions(status *corev1.NamespaceStatus, left leftover, failed failures, now time.Time) bool {
	changed := false
	for _, condition := range []corev1.NamespaceCondition{
		condition(corev1.NamespaceDeletionDiscoveryFailure, discoveryProblem(failed.discovery), "DiscoveryFailed",
			"ResourcesDiscovered", "All resources successfully discovered"),
		condition(corev1.NamespaceDeletionGVParsingFailure, joined(failed.parsing), "GroupVersionParsingFailed",
			"ParsedGroupVersions", "All group versions successfully parsed"),
		condition(corev1.NamespaceDeletionContentFailure, contentProblem(failed.content), "ContentDeletionFailed",
			"ContentDeleted", "All content successfully deleted, may be waiting on finalization"),
		condition(corev1.NamespaceContentRemaining, remainingProblem(left.objects), "SomeResourcesRemain",
			"ContentRemoved", "All content successfully removed"),
		condition(corev1.NamespaceFinalizersRemaining, finalizersProblem(left.finalizers), "SomeFinalizersRemain",
			"ContentHasNoFinalizers", "All content-preserving finalizers finished"),
	} {
		condition.LastTransitionTime = metav1.NewTime(now)
		changed = setCondition(status, condition) || changed
	}
	return changed
}

func setCondition(status *corev1.NamespaceStatus, condition corev1.NamespaceCondition) bool {
	i := slices.IndexFunc(status.Conditions, func(c corev1.NamespaceCondition) bool { return c.Type == condition.Type })
	if i < 0 {
		status.Conditions = append(status.Conditions, condition)
		return true
	}
	existing := &status.Conditions[i]
	if existing.Status == condition.Status {
		condition.LastTransitionTime = existing.LastTransitionTime
	}
	if *existing == condition {
		return false
	}
	*existing = condition
	return true
}

// discoveryProblem is empty if nothing failed, as the other problems.
func discoveryProblem(failed []error) string {
	message := joined(failed)
	if partial := (*discovery.ErrGroupDiscoveryFailed)(nil); len(failed) == 1 && errors.As(failed[0], &partial) {
		message = fmt.Sprintf("Discovery failed for some groups, %d failing: %s", len(partial.Groups), message)
	}
	return message
}

func contentProblem(failed []error) string {
	if len(failed) == 0 {
		return ""
	}
	return fmt.Sprintf("Failed to delete all resource types, %d remaining: %s", len(failed), joined(failed))
}

func remainingProblem(objects map[schema.GroupResource]int) string {
	var parts []string
	for resource, count := range objects {
		parts = append(parts, fmt.Sprintf("%s has %d resource instances", resource, count))
	}
	if len(parts) == 0 {
		return ""
	}
	slices.Sort(parts)
	return "Some resources are remaining: " + strings.Join(parts, ", ")
}

func finalizersProblem(finalizers map[string]int) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(finalizers)) {
		parts = append(parts, fmt.Sprintf("%s in %d resource instances", name, finalizers[name]))
	}
	if len(parts) == 0 {
		return ""
	}
	return "Some content in the namespace has finalizers remaining: " + strings.Join(parts, ", ")
}

// condition is True with a problem, which keeps the namespace.
func condition(kind corev1.NamespaceConditionType, problem, problemReason, reason, message string) corev1.NamespaceCondition {
	if problem != "" {
		return corev1.NamespaceCondition{Type: kind, Status: corev1.ConditionTrue, Reason: problemReason, Message: framework.Shorten(problem, maxMessage)}
	}
	return corev1.NamespaceCondition{Type: kind, Status: corev1.ConditionFalse, Reason: reason, Message: message}
}

// joined lists errors in a stable order, so that the same failures do not change the
// status.
func joined(failed []error) string {
	messages := make([]string, 0, len(failed))
	for _, err := range failed {
		messages = append(messages, err.Error())
	}
	slices.Sort(messages)
	return strings.Join(messages, ", ")
}
