// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package intact

import (
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/storage/corruption"
)

// Reasons of the condition, and of events.
const (
	reasonReadable   = "AllReadable"
	reasonUnreadable = "UnreadableObjects"
)

const (
	// mostExplained is how many objects a message names with what is wrong with them.
	mostExplained = 10

	// longestReason is how much of that it says, in bytes: it may quote what is stored.
	longestReason = 300
)

// condition says which objects cannot be read.
func condition(unreadable []corruption.Object) metav1.Condition {
	c := metav1.Condition{
		Type: hostingv1alpha1.HostedResourceObjectsReadable, Status: metav1.ConditionTrue, Reason: reasonReadable,
		Message: "Every object can be read",
	}
	if len(unreadable) == 0 {
		return c
	}
	var parts []string
	for _, object := range unreadable[:min(len(unreadable), mostExplained)] {
		parts = append(parts, fmt.Sprintf("%s: %s", object, shortened(object.Reason)))
	}
	if more := len(unreadable) - len(parts); more > 0 {
		parts = append(parts, fmt.Sprintf("and %d more", more))
	}
	c.Status, c.Reason = metav1.ConditionFalse, reasonUnreadable
	c.Message = summary(unreadable) + ". " + strings.Join(parts, "; ")
	return c
}

// summary is what a condition and an event begin with.
func summary(unreadable []corruption.Object) string {
	if len(unreadable) == 1 {
		return "1 object cannot be read, so lists fail"
	}
	return fmt.Sprintf("%d objects cannot be read, so lists fail", len(unreadable))
}

func shortened(reason string) string {
	if len(reason) <= longestReason {
		return reason
	}
	return strings.ToValidUTF8(reason[:longestReason], "") + "…"
}
