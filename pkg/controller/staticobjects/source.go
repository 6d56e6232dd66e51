// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package staticobjects

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/controller/framework"
	"github.com/annex-dev/annex/pkg/staticobjects"
)

// reconcileSource shows in a StaticSource what became of its objects, and watches the resources
// that may have mirrors of it.
func (c *Controller) reconcileSource(ctx context.Context, source string) error {
	status := c.status(source)
	before, current, err := c.writeStatus(ctx, source, status)
	if err != nil {
		return fmt.Errorf("write static source %s: %w", source, err)
	}
	if !c.settled.Load() && c.isSettled() {
		c.settle(func() {})
	}
	if current == nil {
		return nil
	}
	setMetrics(source, status.Objects, c.states.snapshot())
	c.report(before, current)
	for _, resource := range current.Status.Resources {
		t, err := c.resolver.inGroup(ctx, schema.ParseGroupResource(resource).Group, func(t target) bool {
			return t.GroupResource().String() == resource
		})
		if errors.Is(err, errUnserved) {
			continue // there are no mirrors; a new definition queues the source
		}
		if err != nil {
			return fmt.Errorf("find the mirrors in %s: %w", resource, err)
		}
		c.watches.ensure(t)
	}
	return nil
}

// record adds a resource to the status of a StaticSource.
func (c *Controller) record(ctx context.Context, source string, resource schema.GroupResource) error {
	c.recording.Lock()
	known := c.recorded[source].Has(resource.String())
	c.recording.Unlock()
	if known {
		return nil
	}
	status := c.status(source)
	status.Resources = []string{resource.String()}
	if _, _, err := c.writeStatus(ctx, source, status); err != nil {
		return fmt.Errorf("record %s in static source %s: %w", resource, source, err)
	}
	return nil
}

// writeStatus writes a StaticSource if something has changed. status.Resources are added to its
// resources. It returns the source before and after, nil if annex has no such source. The time of
// a condition changes with its status.
func (c *Controller) writeStatus(ctx context.Context, name string, status hostingv1alpha1.StaticSourceStatus) (before, current *hostingv1alpha1.StaticSource, err error) {
	c.recording.Lock()
	defer c.recording.Unlock()
	client := c.config.AnnexStaticSources
	if before, err = framework.IgnoreNotFound(client.Get(ctx, name, metav1.GetOptions{})); err != nil {
		return nil, nil, err
	}
	location := c.locations[name]
	wanted := hostingv1alpha1.StaticSourceSpec{Location: location}
	switch {
	case before == nil && location == "":
		return nil, nil, nil
	case before == nil:
		before, err = client.Create(ctx, &hostingv1alpha1.StaticSource{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: wanted}, metav1.CreateOptions{})
	case location != "" && before.Spec != wanted:
		moved := before.DeepCopy()
		moved.Spec = wanted
		before, err = client.Update(ctx, moved, metav1.UpdateOptions{})
	}
	if err != nil {
		return nil, nil, err
	}
	current = before.DeepCopy()
	conditions := current.Status.Conditions
	for _, condition := range status.Conditions {
		condition.ObservedGeneration = current.Generation
		meta.SetStatusCondition(&conditions, condition)
	}
	resources := sets.New(before.Status.Resources...).Insert(status.Resources...).Union(c.recorded[name])
	current.Status = status
	current.Status.Conditions, current.Status.Resources = conditions, sets.List(resources)
	if !apiequality.Semantic.DeepEqual(before.Status, current.Status) {
		if current, err = client.UpdateStatus(ctx, current, metav1.UpdateOptions{}); err != nil {
			return nil, nil, err
		}
	}
	c.recorded[name] = resources
	return before, current, nil
}

// status is the state of a source, without the resources that were recorded before.
func (c *Controller) status(source string) hostingv1alpha1.StaticSourceStatus {
	snapshot, read := c.manager.Source(source)
	var status hostingv1alpha1.StaticSourceStatus
	status.Objects = int64(len(snapshot.Objects))
	for _, p := range snapshot.Problems {
		status.Problems = append(status.Problems, hostingv1alpha1.StaticProblem{Origin: p.Origin, Reason: p.Reason, Message: framework.Shorten(p.Message, maxMessage)})
	}
	all := c.states.snapshot()
	for _, s := range all {
		if s.source != source {
			continue
		}
		switch s.phase {
		case applied:
			status.Applied++
		case orphaned:
			status.Orphaned++
		}
	}
	for _, p := range problemsOf(source, all) {
		status.Problems = append(status.Problems, hostingv1alpha1.StaticProblem{
			Origin: p.origin, Object: p.key.String(), Reason: p.reason, Message: framework.Shorten(p.message, maxMessage),
		})
	}
	status.Conditions = []metav1.Condition{c.readCondition(source, snapshot, read), appliedCondition(status)}
	status.Problems = status.Problems[:min(len(status.Problems), maxReported)]
	return status
}

func (c *Controller) readCondition(source string, snapshot staticobjects.Snapshot, read bool) metav1.Condition {
	condition := metav1.Condition{Type: hostingv1alpha1.StaticSourceRead, Status: metav1.ConditionFalse}
	switch {
	case c.locations[source] == "":
		condition.Reason, condition.Message = hostingv1alpha1.StaticSourceNotConfigured, "The leading annex has no flag for this source"
	case !read:
		condition.Status, condition.Reason, condition.Message = metav1.ConditionUnknown, "Reading", "It has not been read yet"
	case !snapshot.Complete:
		first := snapshot.Problems[0]
		condition.Reason = hostingv1alpha1.StaticSourceReadFailed
		condition.Message = framework.Shorten(strings.TrimSpace(first.Origin+" "+first.Message), maxMessage) + "; nothing is deleted until it can be read"
	default:
		condition.Status, condition.Reason = metav1.ConditionTrue, "Complete"
		condition.Message = fmt.Sprintf("%d objects", len(snapshot.Objects))
	}
	return condition
}

func appliedCondition(status hostingv1alpha1.StaticSourceStatus) metav1.Condition {
	condition := metav1.Condition{Type: hostingv1alpha1.StaticSourceApplied, Status: metav1.ConditionTrue, Reason: "Applied", Message: "All objects are applied"}
	if status.Applied == status.Objects {
		return condition
	}
	condition.Status, condition.Reason = metav1.ConditionFalse, "NotApplied"
	condition.Message = fmt.Sprintf("%d of %d objects are not applied", status.Objects-status.Applied, status.Objects)
	// The first problem of an object, or of one that is there twice.
	i := slices.IndexFunc(status.Problems, func(p hostingv1alpha1.StaticProblem) bool {
		return p.Object != "" && p.Reason != reasonOrphaned || p.Reason == staticobjects.ReasonDuplicate
	})
	if i >= 0 {
		p := status.Problems[i]
		condition.Message += ": " + strings.TrimSpace(p.Object+" "+p.Origin) + ": " + p.Message
	}
	return condition
}

// report records events of what has changed.
func (c *Controller) report(before, current *hostingv1alpha1.StaticSource) {
	taken := c.states.take(current.Name)
	for _, action := range []staticobjects.Action{staticobjects.Create, staticobjects.Update, staticobjects.Delete, staticobjects.Orphan} {
		if n := taken.written[string(action)]; n > 0 {
			c.config.Events.Eventf(current, nil, corev1.EventTypeNormal, "MirrorsWritten", string(action), "Mirrors: %s %d", strings.ToLower(string(action)), n)
		}
	}
	for _, p := range taken.problems {
		c.config.Events.Eventf(current, nil, corev1.EventTypeWarning, p.reason, "Apply", "%s", framework.Shorten(p.key.String()+": "+p.message, maxMessage))
	}
	read := meta.FindStatusCondition(current.Status.Conditions, hostingv1alpha1.StaticSourceRead)
	was := meta.FindStatusCondition(before.Status.Conditions, hostingv1alpha1.StaticSourceRead)
	if read.Status == metav1.ConditionFalse && (was == nil || was.Status != read.Status || was.Message != read.Message) {
		c.config.Events.Eventf(current, nil, corev1.EventTypeWarning, read.Reason, "Read", "%s", read.Message)
	}
}

// maxMessage bounds messages in a status and in events.
const maxMessage = 500
