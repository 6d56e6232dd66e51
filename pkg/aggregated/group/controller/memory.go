// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/klog/v2"

	"github.com/annex-dev/annex/pkg/aggregated/group"
)

const (
	// writeInterval is the minimum time between writes of one APIService, so that another
	// writer that reverts them cannot cause a busy loop.
	writeInterval = time.Second

	// firstRecheckDelay is the time for which an APIService is unavailable before annex requests a
	// check; the delay doubles each time. The main cluster's own checks become rarer, so
	// it would return 503 for up to half a minute after annex is back.
	firstRecheckDelay = time.Second
	// maxRechecks bounds the requests. If they do not help, annex's own downtime was not the cause.
	maxRechecks = 5

	// toleratedReverts is the number of times that an APIService of annex may be given back to the main cluster by
	// another writer until annex takes it over in growing intervals only.
	toleratedReverts = 3
	// firstRevertDelay doubles each time, up to maxRevertDelay.
	firstRevertDelay = 2 * time.Second
	maxRevertDelay   = 5 * time.Minute
	// revertMemory is the time without a revert after which the count begins anew.
	revertMemory = 10 * time.Minute
)

// memory holds the state of a version that no object has. It lives for one leadership, and one worker uses it.
type memory struct {
	version schema.GroupVersion
	// announced is the last logged reason.
	announced string
	// written is the time of the last write of its APIService.
	written time.Time
	// routed reports whether requests were observed to reach annex. An available APIService does not prove that:
	// its controller in kube-apiserver is separate from the proxy, and until the proxy has observed a takeover,
	// new objects are stored in the main cluster.
	routed bool

	rechecks    int
	nextRecheck time.Time

	// reverts counts how often another writer, such as a GitOps controller, has given back the requests of the
	// version to the main cluster, or deleted its APIService, and taken is the time of annex's last takeover. annex takes
	// them over again, because the main cluster's copy of the group may be outdated, but at growing intervals.
	reverts int
	taken   time.Time
}

func (r *reconciler) remember(version schema.GroupVersion) *memory {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.memories[version] == nil {
		r.memories[version] = &memory{version: version}
	}
	return r.memories[version]
}

// forget drops the memories of a group's versions that are not in its plan.
func (r *reconciler) forget(name string, versions []group.Version) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for of := range r.memories {
		if of.Group == name && !slices.ContainsFunc(versions, func(v group.Version) bool { return v.Name == of.Version }) {
			published.DeleteLabelValues(name, of.Version)
			delete(r.memories, of)
		}
	}
}

func (m *memory) writeDelay(now time.Time) time.Duration {
	return max(0, writeInterval-now.Sub(m.written))
}

// recheckDue reports whether to request a check now and, if not, when. The delay elapses also
// while requests are not allowed.
func (m *memory) recheckDue(allowed bool, now time.Time) (due bool, wait time.Duration) {
	if m.nextRecheck.IsZero() {
		m.nextRecheck = now.Add(firstRecheckDelay)
	}
	switch {
	case m.rechecks == maxRechecks || !allowed:
		return false, 0
	case now.Before(m.nextRecheck):
		return false, m.nextRecheck.Sub(now)
	}
	m.rechecks++
	m.nextRecheck = now.Add(firstRecheckDelay << m.rechecks)
	return true, 0
}

// took records that annex takes over the requests.
func (m *memory) took(now time.Time) {
	m.reverts++
	if m.taken.IsZero() || now.Sub(m.taken) > revertMemory {
		m.reverts = 0
	}
	m.taken = now
}

// revertDelay returns the time for which annex leaves the requests with the main cluster, and the reason.
func (m *memory) revertDelay(now time.Time) (time.Duration, group.Status) {
	if m.reverts < toleratedReverts {
		return 0, group.Status{}
	}
	delay := min(firstRevertDelay<<min(m.reverts-toleratedReverts, 16), maxRevertDelay)
	left := delay - now.Sub(m.taken)
	if left <= 0 {
		return 0, group.Status{}
	}
	name := group.APIServiceName(m.version)
	return left, group.No(group.ReasonReverted, fmt.Sprintf(
		"Another writer has given APIService %s back to the main cluster %d times. annex takes it over again at %s. Find what writes it: kubectl get apiservice %s -o yaml --show-managed-fields",
		name, m.reverts+1, now.Add(left).UTC().Format(time.RFC3339), name))
}

// announce logs a version whose reason changes.
func (m *memory) announce(ctx context.Context, result group.Status) {
	before := m.announced
	if before == result.Reason {
		return
	}
	m.announced = result.Reason
	logger := klog.FromContext(ctx).WithValues("groupVersion", m.version, "reason", result.Reason, "message", result.Message)
	switch {
	case result.Reason == group.ReasonForeignAPIService:
		logger.Error(nil, "The main cluster sends requests elsewhere, and annex leaves that alone")
	case result.IsTrue():
		logger.Info("The main cluster sends requests to annex")
	case before == group.ReasonPublished:
		logger.Info("The main cluster no longer sends requests to annex")
	case result.Reason == group.ReasonGroupInMain || result.Reason == group.ReasonDataReplaced:
		logger.Info("The main cluster does not send requests to annex")
	default:
		logger.V(2).Info("The main cluster does not send requests to annex yet")
	}
}
