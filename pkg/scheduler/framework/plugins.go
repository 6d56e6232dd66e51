// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package framework

import (
	"cmp"
	"fmt"
	"slices"
)

// MaxScore is the best score.
const MaxScore = 100

// FilterFunc says why a resource cannot be placed on a Store, in words that go on
// after the Store's name and begin with no capital. It returns nothing if it can.
type FilterFunc func(resource *Resource, store *Store) (whyNot string)

// ScoreFunc says how good a Store is for a resource, from 0 to MaxScore. It is asked
// about the Stores that all filters let pass.
type ScoreFunc func(resource *Resource, store *Store) int64

// Plugins are all that have a say.
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

// AddFilter adds a filter. A name that is taken is a mistake of the program.
func (p *Plugins) AddFilter(name string, run FilterFunc) {
	if slices.ContainsFunc(p.filters, func(f filterPlugin) bool { return f.name == name }) {
		panic(fmt.Sprintf("there are two filters %q", name))
	}
	p.filters = append(p.filters, filterPlugin{name, run})
	slices.SortFunc(p.filters, func(a, b filterPlugin) int { return cmp.Compare(a.name, b.name) })
}

// AddScore adds a score, which counts as often as its weight says. A name that is
// taken is a mistake of the program.
func (p *Plugins) AddScore(name string, weight int64, run ScoreFunc) {
	if slices.ContainsFunc(p.scores, func(s scorePlugin) bool { return s.name == name }) {
		panic(fmt.Sprintf("there are two scores %q", name))
	}
	p.scores = append(p.scores, scorePlugin{name, weight, run})
	slices.SortFunc(p.scores, func(a, b scorePlugin) int { return cmp.Compare(a.name, b.name) })
}

// Fits asks all filters, and returns what is in the way.
func (p *Plugins) Fits(resource *Resource, store *Store) []Reason {
	var reasons []Reason
	for _, f := range p.filters {
		if why := f.run(resource, store); why != "" {
			reasons = append(reasons, Reason{Filter: f.name, Message: why})
		}
	}
	return reasons
}

// score runs all score plugins.
func (p *Plugins) score(resource *Resource, store *Store) (total int64, each []Score) {
	for _, s := range p.scores {
		value := min(max(s.run(resource, store), 0), MaxScore)
		each = append(each, Score{Plugin: s.name, Value: value, Weight: s.weight})
		total += value * s.weight
	}
	return total, each
}
