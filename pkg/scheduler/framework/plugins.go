// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package framework defines the scheduler's plugins: their inputs, their results and how
// the results become a decision. It is deterministic: no requests, no clock, no state.
package framework

import (
	"cmp"
	"fmt"
	"slices"
)

// MaxScore is the best score.
const MaxScore = 100

// FilterFunc returns why a resource cannot be placed on a Store, or nothing if it can.
// The text follows the Store's name in messages and begins in lower case.
type FilterFunc func(resource *Resource, store *Store) (reason string)

// ScoreFunc rates a Store for a resource from 0 to MaxScore. It is called for the
// Stores that pass all filters.
type ScoreFunc func(resource *Resource, store *Store) int64

// Plugins are filters and scores by name.
type Plugins struct {
	filters []filterPlugin
	scores  []scorePlugin
}

type filterPlugin struct {
	name string
	run  FilterFunc
}

type scorePlugin struct {
	name   string
	weight int64
	run    ScoreFunc
}

// AddFilter adds a filter. It panics if the name is taken.
func (p *Plugins) AddFilter(name string, run FilterFunc) {
	if slices.ContainsFunc(p.filters, func(f filterPlugin) bool { return f.name == name }) {
		panic(fmt.Sprintf("there are two filters %q", name))
	}
	p.filters = append(p.filters, filterPlugin{name, run})
	slices.SortFunc(p.filters, func(a, b filterPlugin) int { return cmp.Compare(a.name, b.name) })
}

// AddScore adds a score, which is multiplied by its weight. It panics if the name is
// taken.
func (p *Plugins) AddScore(name string, weight int64, run ScoreFunc) {
	if slices.ContainsFunc(p.scores, func(s scorePlugin) bool { return s.name == name }) {
		panic(fmt.Sprintf("there are two scores %q", name))
	}
	p.scores = append(p.scores, scorePlugin{name, weight, run})
	slices.SortFunc(p.scores, func(a, b scorePlugin) int { return cmp.Compare(a.name, b.name) })
}

// Filter runs all filters, and returns the reasons why the Store does not fit.
func (p *Plugins) Filter(resource *Resource, store *Store) []Reason {
	var reasons []Reason
	for _, f := range p.filters {
		if message := f.run(resource, store); message != "" {
			reasons = append(reasons, Reason{Filter: f.name, Message: message})
		}
	}
	return reasons
}

func (p *Plugins) score(resource *Resource, store *Store) (total int64, scores []Score) {
	for _, s := range p.scores {
		value := min(max(s.run(resource, store), 0), MaxScore)
		scores = append(scores, Score{Plugin: s.name, Value: value, Weight: s.weight})
		total += value * s.weight
	}
	return total, scores
}
