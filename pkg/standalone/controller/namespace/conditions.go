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
)

// maxMessage bounds a message, so that the namespace can be stored also with a hundred
// failing resources.
const maxMessage = 4096

// setConditions sets the conditions with the types and reasons of
// kube-controller-manager, and reports whether any changed.
func setConditions(status *corev1.NamespaceStatus, left leftover, failed failures, now time.Time) bool {
	changed := false
	for _, condition := range []corev1.NamespaceCondition{
		discoveryCondition(failed.discovery),
		parsingCondition(failed.parsing),
		contentCondition(failed.content),
		remainingCondition(left.objects),
		finalizersCondition(left.finalizers),
	} {
		condition.Message = shorten(condition.Message)
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

func discoveryCondition(failed []error) corev1.NamespaceCondition {
	if len(failed) == 0 {
		return condition(corev1.NamespaceDeletionDiscoveryFailure, false,
			"ResourcesDiscovered", "All resources successfully discovered")
	}
	message := joined(failed)
	if partial := (*discovery.ErrGroupDiscoveryFailed)(nil); len(failed) == 1 && errors.As(failed[0], &partial) {
		message = fmt.Sprintf("Discovery failed for some groups, %d failing: %s", len(partial.Groups), message)
	}
	return condition(corev1.NamespaceDeletionDiscoveryFailure, true, "DiscoveryFailed", message)
}

func parsingCondition(failed []error) corev1.NamespaceCondition {
	if len(failed) == 0 {
		return condition(corev1.NamespaceDeletionGVParsingFailure, false,
			"ParsedGroupVersions", "All group versions successfully parsed")
	}
	return condition(corev1.NamespaceDeletionGVParsingFailure, true, "GroupVersionParsingFailed", joined(failed))
}

func contentCondition(failed []error) corev1.NamespaceCondition {
	if len(failed) == 0 {
		return condition(corev1.NamespaceDeletionContentFailure, false,
			"ContentDeleted", "All content successfully deleted, may be waiting on finalization")
	}
	return condition(corev1.NamespaceDeletionContentFailure, true, "ContentDeletionFailed",
		fmt.Sprintf("Failed to delete all resource types, %d remaining: %s", len(failed), joined(failed)))
}

func remainingCondition(objects map[schema.GroupResource]int) corev1.NamespaceCondition {
	if len(objects) == 0 {
		return condition(corev1.NamespaceContentRemaining, false,
			"ContentRemoved", "All content successfully removed")
	}
	var parts []string
	for resource, count := range objects {
		parts = append(parts, fmt.Sprintf("%s has %d resource instances", resource, count))
	}
	slices.Sort(parts)
	return condition(corev1.NamespaceContentRemaining, true, "SomeResourcesRemain",
		"Some resources are remaining: "+strings.Join(parts, ", "))
}

func finalizersCondition(finalizers map[string]int) corev1.NamespaceCondition {
	if len(finalizers) == 0 {
		return condition(corev1.NamespaceFinalizersRemaining, false,
			"ContentHasNoFinalizers", "All content-preserving finalizers finished")
	}
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(finalizers)) {
		parts = append(parts, fmt.Sprintf("%s in %d resource instances", name, finalizers[name]))
	}
	return condition(corev1.NamespaceFinalizersRemaining, true, "SomeFinalizersRemain",
		"Some content in the namespace has finalizers remaining: "+strings.Join(parts, ", "))
}

// condition creates a condition. "True" is always what keeps the namespace.
func condition(kind corev1.NamespaceConditionType, holds bool, reason, message string) corev1.NamespaceCondition {
	status := corev1.ConditionFalse
	if holds {
		status = corev1.ConditionTrue
	}
	return corev1.NamespaceCondition{Type: kind, Status: status, Reason: reason, Message: message}
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

// shorten cuts a message that is too long for a condition.
func shorten(message string) string {
	if len(message) <= maxMessage {
		return message
	}
	const mark = " …"
	return strings.ToValidUTF8(message[:maxMessage-len(mark)], "") + mark
}
