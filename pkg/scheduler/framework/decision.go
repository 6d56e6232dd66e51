// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package framework

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Obstacle is why a Store does not fit.
type Obstacle struct {
	Filter string
	Why    string
}

// Points are what one score gave.
type Points struct {
	Score  string
	Points int64
	Weight int64
}

// Verdict is what was found out about one Store.
type Verdict struct {
	Store string
	// Obstacles are empty if the Store fits.
	Obstacles []Obstacle
	// Total is the sum of Points by weight, which only a Store that fits has.
	Total  int64
	Points []Points

	resources int
}

// Fits reports whether the resource can be placed on the Store.
func (v Verdict) Fits() bool { return len(v.Obstacles) == 0 }

// WhyNot is all that is in the way, or nothing.
func (v Verdict) WhyNot() string {
	reasons := make([]string, 0, len(v.Obstacles))
	for _, obstacle := range v.Obstacles {
		reasons = append(reasons, obstacle.Why)
	}
	return strings.Join(reasons, ", ")
}

// Decision is what was found out about all Stores, the best first.
type Decision []Verdict

// Decide asks all plugins about all Stores.
func (p *Plugins) Decide(resource *Resource, stores []*Store) Decision {
	decision := make(Decision, 0, len(stores))
	for _, store := range stores {
		verdict := Verdict{Store: store.Name, Obstacles: p.Fits(resource, store), resources: len(store.Resources)}
		if verdict.Fits() {
			verdict.Total, verdict.Points = p.score(resource, store)
		}
		decision = append(decision, verdict)
	}
	slices.SortFunc(decision, compare)
	return decision
}

// compare puts the better Store first. Of two that are as good the one with fewer
// resources is, and in the end the name decides: never chance.
func compare(a, b Verdict) int {
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
func (d Decision) Best() (Verdict, bool) {
	if len(d) == 0 || !d[0].Fits() {
		return Verdict{}, false
	}
	return d[0], true
}

// String says of every Store what is in the way, or how good it is.
func (d Decision) String() string {
	if len(d) == 0 {
		return "there are no Stores"
	}
	parts := make([]string, 0, len(d))
	for _, verdict := range d {
		if verdict.Fits() {
			parts = append(parts, fmt.Sprintf("%s: score %d", verdict.Store, verdict.Total))
		} else {
			parts = append(parts, fmt.Sprintf("%s: %s", verdict.Store, verdict.WhyNot()))
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
	for _, verdict := range d {
		names := make([]string, 0, len(verdict.Obstacles))
		for _, obstacle := range verdict.Obstacles {
			names = append(names, obstacle.Filter)
		}
		cause := strings.Join(names, "+")
		if verdict.Fits() {
			cause = fmt.Sprintf("score %d", verdict.Total)
		}
		if byCause[cause] == nil {
			causes = append(causes, cause)
		}
		byCause[cause] = append(byCause[cause], verdict.Store)
	}
	parts := make([]string, 0, len(causes))
	for _, cause := range causes {
		parts = append(parts, cause+": "+strings.Join(byCause[cause], ", "))
	}
	return cut(d.summary()+": "+strings.Join(parts, "; "), limit)
}

func (d Decision) summary() string {
	fit := 0
	for _, verdict := range d {
		if verdict.Fits() {
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
