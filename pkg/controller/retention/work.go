// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package retention

import (
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
)

const (
	// minInterval and maxInterval bound the time from one run to the next.
	minInterval = 10 * time.Second
	maxInterval = 10 * time.Minute
	// lateness is the part of the shortest age by which an object may be deleted late.
	lateness = 10
	// The time to the next run is at least runShare times the duration of a run.
	runShare = 20
	// retryInterval is the time from a run with failures to the next.
	retryInterval = time.Minute

	// A plan is dropped after maxPlanAge.
	maxPlanAge = time.Minute
)

// identity identifies the versions of objects that a plan is made for.
type identity struct {
	hosted               types.UID
	generation           int64
	definition           types.UID
	definitionGeneration int64
}

func identityOf(resource *hosted, crd *definition) identity {
	id := identity{hosted: resource.UID, generation: resource.Generation}
	if crd != nil {
		id.definition, id.definitionGeneration = crd.UID, crd.Generation
	}
	return id
}

// work is the state of the retention of a HostedResource. One worker at a time uses it, except
// changed and earliest, which the Controller's mutex guards.
type work struct {
	name string
	identity
	// Objects are read as this resource and kind.
	resource schema.GroupVersionResource
	kind     schema.GroupKind
	rules    []rule
	roots    sets.Set[string]

	// valid and succeeded are the conditions, status the rest of the status.
	valid, succeeded *metav1.Condition
	status           hostingv1alpha1.RetentionStatus
	// written are these as they were last written.
	written *hostingv1alpha1.HostedResourceStatus

	// plan has the objects to delete since the last run, from position on; nil if none are left.
	plan     *plan
	position int
	result   result
	lastRun  time.Time
	took     time.Duration
	// These are copied from the last plan.
	nextDue  time.Time
	complete bool
	blocked  sets.Set[ownerKey]

	// deletions and reads are the paces of these requests to the Store of the resource.
	deletions, reads pace

	news news

	// changed is set if objects changed since the last run began.
	changed bool
	// earliest is the earliest time of the next run.
	earliest time.Time
}

// result counts what became of the objects of a plan.
type result struct {
	deleted, changed, failed int64
	// failure is the first.
	failure string
}

// drop ends a plan early. The next run is as soon as possible.
func (w *work) drop() { w.plan, w.lastRun = nil, time.Time{} }

// interval is the minimum time from one run to the next. The result of a run is exact for a longer
// time if objects are deleted at a higher age.
func (w *work) interval() time.Duration {
	shortest := maxInterval * lateness
	for i := range w.rules {
		shortest = min(shortest, w.rules[i].after)
	}
	return max(min(max(shortest/lateness, minInterval), maxInterval), runShare*w.took)
}

// next returns when the next run is.
func (w *work) next(changed bool) time.Time {
	if w.lastRun.IsZero() {
		return time.Time{}
	}
	if !w.complete && w.result.deleted > 0 {
		return w.lastRun // the plan had no room for all
	}
	earliest := w.lastRun.Add(w.interval())
	next := w.lastRun.Add(maxInterval)
	if !w.nextDue.IsZero() && w.nextDue.Before(next) {
		next = w.nextDue
	}
	if w.result.failed > 0 && next.After(w.lastRun.Add(retryInterval)) {
		next = w.lastRun.Add(retryInterval)
	}
	if changed || w.result.changed > 0 || next.Before(earliest) {
		next = earliest
	}
	return next
}

// begin replaces the plan. A dry run reports examples in the status.
func (w *work) begin(p *plan, started time.Time, took time.Duration, dryRun bool) {
	w.plan, w.position, w.result = p, 0, result{}
	w.lastRun, w.took = started, took
	w.nextDue, w.complete, w.blocked = p.nextDue, p.complete, p.blocked
	before := w.status.Rules
	w.status.Rules = nil
	for i := range w.rules {
		rule := hostingv1alpha1.RetentionRuleStatus{
			Name: w.rules[i].name, Matched: p.rules[i].matched, Due: p.rules[i].due, Skipped: p.rules[i].skipped,
		}
		if at := slices.IndexFunc(before, func(b hostingv1alpha1.RetentionRuleStatus) bool { return b.Name == rule.Name }); at >= 0 {
			rule.Deleted = before[at].Deleted
		}
		if dryRun {
			rule.Examples = p.rules[i].examples
		}
		w.status.Rules = append(w.status.Rules, rule)
		dueObjects.WithLabelValues(w.name, rule.Name).Set(float64(rule.Due))
	}
	w.status.LastRunTime = seconds(started)
}

// deleted counts a deletion.
func (w *work) deleted(t *target) {
	w.result.deleted++
	w.status.Deleted++
	first := t.rule()
	w.status.Rules[first].Deleted++
	deletedTotal.WithLabelValues(w.name, w.rules[first].name).Inc()
	for i := range w.rules {
		if t.rules&(1<<i) == 0 {
			continue
		}
		if rule := &w.status.Rules[i]; rule.Due > 0 {
			rule.Due--
			dueObjects.WithLabelValues(w.name, rule.Name).Set(float64(rule.Due))
		}
	}
	w.news.add(w.rules[first].name, nameOf(t))
}

// seconds is a time as it is stored.
func seconds(t time.Time) *metav1.Time { return new(metav1.NewTime(t).Rfc3339Copy()) }
