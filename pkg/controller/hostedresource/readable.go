// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package hostedresource

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/controller/framework"
	"github.com/annex-dev/annex/pkg/storage/layer/corruption"
)

// Reasons of the condition ObjectsReadable, and of its events.
const (
	reasonAllReadable       = "AllReadable"
	reasonUnreadableObjects = "UnreadableObjects"
	reasonReadsFail         = "ReadsFail"
)

const (
	// A message names at most maxExplained objects with their errors.
	maxExplained = 10

	// maxErrorLength is the length in bytes to which these are cut: they may quote
	// stored data.
	maxErrorLength = 300
)

// UnreadableObjects lists the objects that cannot be read. A *corruption.Registry is one.
type UnreadableObjects interface {
	// Unreadable returns the unreadable objects of a resource, in order.
	Unreadable(resource schema.GroupResource) []corruption.Object
	// AllRead reports whether all objects of a resource were read.
	AllRead(resource schema.GroupResource) bool
	// Failure returns why the objects of a resource cannot be read for another reason, or "".
	Failure(resource schema.GroupResource) string
	// AddHandler registers a handler of changes until remove is called.
	AddHandler(handler func(schema.GroupResource)) (remove func())
}

// setObjectsReadable sets the condition ObjectsReadable. A resource gets it with its first
// unreadable object, or the first failure to read all. The condition of a previous process
// stays until all objects have been read, or the definition is gone.
func (r *reconciler) setObjectsReadable(status *hostingv1alpha1.HostedResourceStatus, resource *hosted) []corruption.Object {
	of := schema.ParseGroupResource(resource.Name)
	unreadable, failure := r.unreadable.Unreadable(of), r.unreadable.Failure(of)
	current := meta.FindStatusCondition(status.Conditions, hostingv1alpha1.HostedResourceObjectsReadable)
	switch {
	case len(unreadable) > 0 || failure != "" || current != nil && status.DefinitionUID != "" && r.unreadable.AllRead(of):
		r.setCondition(status, resource, objectsReadableCondition(unreadable, failure))
	case status.DefinitionUID == "":
		meta.RemoveStatusCondition(&status.Conditions, hostingv1alpha1.HostedResourceObjectsReadable)
	}
	return unreadable
}

func objectsReadableCondition(unreadable []corruption.Object, failure string) metav1.Condition {
	c := metav1.Condition{
		Type: hostingv1alpha1.HostedResourceObjectsReadable, Status: metav1.ConditionTrue, Reason: reasonAllReadable,
		Message: "Every object can be read",
	}
	switch {
	case len(unreadable) == 0 && failure != "":
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, reasonReadsFail, "Lists and watches fail. "+framework.Shorten(failure, maxErrorLength)
		return c
	case len(unreadable) == 0:
		return c
	}
	var parts []string
	for _, object := range unreadable[:min(len(unreadable), maxExplained)] {
		parts = append(parts, fmt.Sprintf("%s: %s", object, framework.Shorten(object.Reason, maxErrorLength)))
	}
	if more := len(unreadable) - len(parts); more > 0 {
		parts = append(parts, fmt.Sprintf("and %d more", more))
	}
	c.Status, c.Reason = metav1.ConditionFalse, reasonUnreadableObjects
	c.Message = unreadableSummary(unreadable) + ". " + strings.Join(parts, "; ")
	return c
}

// unreadableSummary begins the condition's message and the event.
func unreadableSummary(unreadable []corruption.Object) string {
	if len(unreadable) == 1 {
		return "1 object cannot be read, so lists fail"
	}
	return fmt.Sprintf("%d objects cannot be read, so lists fail", len(unreadable))
}
