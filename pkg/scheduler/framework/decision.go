// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package framework

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Reason is why a Store does not fit.
type Reason struct {
	Filter  string
	Message string
}

// Score is what one score plugin returned.
type Score struct {
	Plugin string
	Value  int64
	Weight int64
}

// StoreResult is what was found out about one Store.
type StoreResult struct {
	Store string
	// Reasons are empty if the Store fits.
	Reasons []Reason
	// Total is the weighted sum of Scores, 0 for a Store that does not fit.
	Total  int64
	Scores []Score

	resources int
}

// Fits reports whether the resource can be placed on the Store.
func (r StoreResult) Fits() bool { return len(r.Reasons) == 0 }

// Message is all that is in the way, or nothing.
func (r StoreResult) Message() string {
	reasons := make([]string, 0, len(r.Reasons))
	for _, reason := range r.Reasons {
		reasons = append(reasons, reason.Message)
	}
	return strings.Join(reasons, ", ")
}

// Decision is what was found out about all Stores, the best first.
type Decision []StoreResult

// Decide asks all plugins about all Stores.
func (p *Plugins) Decide(resource *Resource, stores []*Store) Decision {
	decision := make(Decision, 0, len(stores))
	for _, store := range stores {
		result := StoreResult{Store: store.Name, Reasons: p.Fits(resource, store), resources: len(store.Resources)}
		if result.Fits() {
			result.Total, result.Scores = p.score(resource, store)
		}
		decision = append(decision, result)
	}
	slices.SortFunc(decision, compare)
	return decision
}

// compare puts the better Store first. Of two that are as good the one with fewer
// resources is, and in the end the name decides: never chance.
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

// Best is the Store to place the resource on, or false if none fits.
func (d Decision) Best() (StoreResult, bool) {
	if len(d) == 0 || !d[0].Fits() {
		return StoreResult{}, false
	}
	return d[0], true
}

// String says of every Store what is in the way, or how good it is.
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

// Brief says the same in at most limit bytes: if it must, only by which filters each
// Store was refused, and in the end only of some Stores.
func (d Decision) Brief(limit int) string {
	if full := d.String(); len(full) <= limit {
		return full
	}
	byCause := map[string][]string{}
	var causes []string
	for _, result := range d {
		names := make([]string, 0, len(result.Reasons))
		for _, reason := range result.Reasons {
			names = append(names, reason.Filter)
		}
		cause := strings.Join(names, "+")
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
	return cut(d.summary()+": "+strings.Join(parts, "; "), limit)
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

// cut shortens ASCII text, as names and reasons of our own are; what else is in it
// may lose a character.
func cut(text string, limit int) string {
	const more = " ..."
	if len(text) <= limit {
		return text
	}
	return strings.ToValidUTF8(text[:limit-len(more)], "") + more
}
