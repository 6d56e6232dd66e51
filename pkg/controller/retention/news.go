// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package retention

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/annex-dev/annex/pkg/controller/framework"
)

// eventInterval is the time from one event to the next. It is longer than the time in which the
// recorder counts an event as a repetition of the previous, whose text it keeps.
const eventInterval = 7 * time.Minute

// news are deletions that no event reports yet.
type news struct {
	byRule   map[string]int64
	examples []string
	// These describe the last event.
	reported, reason string
	last             time.Time
}

func (n *news) add(rule, name string) {
	if n.byRule == nil {
		n.byRule = map[string]int64{}
	}
	n.byRule[rule]++
	if len(n.examples) < maxExamples {
		n.examples = append(n.examples, name)
	}
}

func (n *news) clear() { n.byRule, n.examples = nil, nil }

// wait returns how long to wait for the next event.
func (n *news) wait(now time.Time) time.Duration {
	if len(n.byRule) == 0 {
		return maxInterval
	}
	return max(n.last.Add(eventInterval).Sub(now), time.Millisecond)
}

// String counts the objects that each rule deleted.
func (n *news) String() string {
	var total int64
	var parts []string
	for _, rule := range slices.Sorted(maps.Keys(n.byRule)) {
		total += n.byRule[rule]
		parts = append(parts, fmt.Sprintf("%d by rule %s", n.byRule[rule], rule))
	}
	text := fmt.Sprintf("%s, %s: %s", objects(total), strings.Join(parts, ", "), strings.Join(n.examples, ", "))
	if total > int64(len(n.examples)) {
		text += ", …"
	}
	return text
}

// report records an event for all deletions since the last, if it is time.
func (c *Controller) report(w *work) {
	n, now := &w.news, c.now()
	reason, verb := "ObjectsDeleted", "Deleted"
	if w.succeeded != nil && w.succeeded.Reason == reasonDryRun {
		reason, verb = "ObjectsDue", "Would delete"
	}
	if len(n.byRule) == 0 || reason == n.reason && now.Sub(n.last) < eventInterval {
		return
	}
	resource, err := c.getHosted(w.name)
	if err != nil {
		return // it is gone
	}
	c.config.Events.Eventf(resource, nil, corev1.EventTypeNormal, reason, "Delete", "%s", framework.Shorten(verb+" "+n.String(), maxMessage))
	n.reported, n.reason, n.last = n.String(), reason, now
	n.clear()
}
