// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package framework

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Reason is the reason for which a filter refuses a Store.
type Reason struct {
	Filter  string
	Message string
}

// Score is the result of one score plugin.
type Score struct {
	Plugin string
	Value  int64
	Weight int64
}

// StoreResult is the result of all plugins for one Store.
type StoreResult struct {
	Store string
	// Reasons is empty if the Store fits.
	Reasons []Reason
	// Total is the weighted sum of Scores, 0 for a Store that does not fit.
	Total  int64
	Scores []Score

	resources int
}

// Fits reports whether the resource can be placed on the Store.
func (r StoreResult) Fits() bool { return len(r.Reasons) == 0 }

// Message joins all reasons.
func (r StoreResult) Message() string {
	messages := make([]string, 0, len(r.Reasons))
	for _, reason := range r.Reasons {
		messages = append(messages, reason.Message)
	}
	return strings.Join(messages, ", ")
}

// Decision is the results for all Stores, the best first.
type Decision []StoreResult

// Decide runs all plugins for all Stores.
func (p *Plugins) Decide(resource *Resource, stores []*Store) Decision {
	decision := make(Decision, 0, len(stores))
	for _, store := range stores {
		result := StoreResult{Store: store.Name, Reasons: p.Filter(resource, store), resources: len(store.Resources)}
		if result.Fits() {
			result.Total, result.Scores = p.score(resource, store)
		}
		decision = append(decision, result)
	}
	slices.SortFunc(decision, compare)
	return decision
}

// compare puts the better Store first: by score, then by fewer resources, then by name.
func compare(a, b StoreResult) int {
	switch {
	case a.Fits() && !b.Fits():
		return -1
	case b.Fits() && !a.Fits():
		return 1
	case !a.Fits():
		return cmp.Compare(a.Store, b.Store)
	}
	return cmp.Or(
		cmp.Compare(b.Total, a.Total),
		cmp.Compare(a.resources, b.resources),
		cmp.Compare(a.Store, b.Store),
	)
}

// Best returns the Store to place the resource on, or false if none fits.
func (d Decision) Best() (StoreResult, bool) {
	if len(d) == 0 || !d[0].Fits() {
		return StoreResult{}, false
	}
	return d[0], true
}

// String lists the reasons or the score of every Store.
func (d Decision) String() string {
	if len(d) == 0 {
		return "there are no Stores"
	}
	parts := make([]string, 0, len(d))
	for _, result := range d {
		if result.Fits() {
			parts = append(parts, fmt.Sprintf("%s: score %d", result.Store, result.Total))
		} else {
			parts = append(parts, fmt.Sprintf("%s: %s", result.Store, result.Message()))
		}
	}
	return d.summary() + ": " + strings.Join(parts, "; ")
}

// Brief is String in at most limit bytes. If that is too long, it groups the Stores by
// the filters that refuse them; if that is too long too, it is cut.
func (d Decision) Brief(limit int) string {
	if full := d.String(); len(full) <= limit {
		return full
	}
	byCause := map[string][]string{}
	var causes []string
	for _, result := range d {
		filters := make([]string, 0, len(result.Reasons))
		for _, reason := range result.Reasons {
			filters = append(filters, reason.Filter)
		}
		cause := strings.Join(filters, "+")
		if result.Fits() {
			cause = fmt.Sprintf("score %d", result.Total)
		}
		if byCause[cause] == nil {
			causes = append(causes, cause)
		}
		byCause[cause] = append(byCause[cause], result.Store)
	}
	parts := make([]string, 0, len(causes))
	for _, cause := range causes {
		parts = append(parts, cause+": "+strings.Join(byCause[cause], ", "))
	}
	return truncate(d.summary()+": "+strings.Join(parts, "; "), limit)
}

func (d Decision) summary() string {
	fit := 0
	for _, result := range d {
		if result.Fits() {
			fit++
		}
	}
	return fmt.Sprintf("%d/%d Stores fit", fit, len(d))
}

func truncate(text string, limit int) string {
	const more = " ..."
	if len(text) <= limit {
		return text
	}
	return strings.ToValidUTF8(text[:limit-len(more)], "") + more
}
