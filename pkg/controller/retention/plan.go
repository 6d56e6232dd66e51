// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package retention

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
)

const (
	// maxTargets bounds the memory of a plan. The next one has what remains.
	maxTargets = 10_000

	// At most maxExamples objects of a rule are named.
	maxExamples = 10
)

// target is an object that may be deleted, in the state in which a rule was applied to it.
type target struct {
	types.NamespacedName
	uid             types.UID
	resourceVersion string
	// since is the time that the age counts from.
	since time.Time
	// rules has a bit for each rule that deletes the object.
	rules uint32
}

// rule returns the first rule that deletes the object.
func (t *target) rule() int {
	for i := range maxRules {
		if t.rules&(1<<i) != 0 {
			return i
		}
	}
	return 0
}

// maxRules is the number of bits for rules in a target. Validation allows fewer rules.
const maxRules = 32

func older(a, b *target) int {
	return cmp.Or(a.since.Compare(b.since), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}

// counts counts the objects of a rule.
type counts struct {
	matched, due, skipped int64
	examples              []string
}

// plan is the result of a comparison of all objects with the rules.
type plan struct {
	// targets are the objects to delete, oldest first.
	targets []*target
	// complete is false if more objects are due than targets.
	complete bool
	// rules has the counts of each rule.
	rules []counts
	// objects is the number of all objects.
	objects int64
	// held is the number of objects that are due but have dependents that block their deletion.
	held int64
	// blocked are the owners that dependents of the same resource block.
	blocked sets.Set[ownerKey]
	// nextDue is the due time of the next object; zero if none is known.
	nextDue time.Time
}

// planner compares objects with rules, one after the other, so that a page of them is in memory at a
// time.
type planner struct {
	rules []rule
	// All objects have this kind. References may have it in lower case.
	kind, lower schema.GroupKind
	now         time.Time
	// blockedBefore are the blocked owners of the previous plan, if it had no room for all objects:
	// they are left out, so that they do not take the places of others again.
	blockedBefore sets.Set[ownerKey]
	maxTargets    int

	plan plan
	// newest are the newest objects of each group, by rule.
	newest []map[group]*targets
	due    targets
	byUID  map[types.UID]*target
}

func newPlanner(rules []rule, kind schema.GroupKind, now time.Time) *planner {
	p := &planner{
		rules: rules, kind: kind, lower: schema.GroupKind{Group: kind.Group, Kind: strings.ToLower(kind.Kind)}, now: now, maxTargets: maxTargets,
		plan:   plan{complete: true, rules: make([]counts, len(rules)), blocked: sets.New[ownerKey]()},
		newest: make([]map[group]*targets, len(rules)),
		due:    targets{order: older},
		byUID:  map[types.UID]*target{},
	}
	for i := range p.newest {
		p.newest[i] = map[group]*targets{}
	}
	return p
}

// add compares an object with all rules.
func (p *planner) add(o *object) {
	p.plan.objects++
	for i := range o.OwnerReferences {
		owner := &o.OwnerReferences[i]
		if owner.BlockOwnerDeletion == nil || !*owner.BlockOwnerDeletion {
			continue
		}
		if key := ownerOf(o, owner); key.kind == p.kind || key.kind == p.lower {
			key.kind = p.kind
			p.plan.blocked.Insert(key)
		}
	}
	if o.DeletionTimestamp != nil {
		return
	}
	for i := range p.rules {
		if p.rules[i].selector.Matches(labels.Set(o.Labels)) {
			p.apply(i, o)
		}
	}
}

func (p *planner) apply(i int, o *object) {
	r, count := &p.rules[i], &p.plan.rules[i]
	since, applies, usable := r.since(o)
	if !applies {
		return
	}
	count.matched++
	t := &target{
		NamespacedName: types.NamespacedName{Namespace: o.Namespace, Name: o.Name},
		uid:            o.UID, resourceVersion: o.ResourceVersion, since: since,
	}
	if r.keep == nil || !usable {
		if !usable {
			count.skipped++
			return
		}
		p.consider(i, t)
		return
	}
	group, found := r.group(o)
	if !found {
		count.skipped++
		return
	}
	newest := p.newest[i][group]
	if newest == nil {
		newest = &targets{order: func(a, b *target) int { return older(b, a) }}
		p.newest[i][group] = newest
	}
	if displaced := newest.keep(t, int(r.keep.Count)); displaced != nil {
		p.consider(i, displaced)
	}
}

// consider adds an object that the rule does not keep to the plan, if it is due.
func (p *planner) consider(i int, t *target) {
	if due := t.since.Add(p.rules[i].after); due.After(p.now) {
		if p.plan.nextDue.IsZero() || due.Before(p.plan.nextDue) {
			p.plan.nextDue = due
		}
		return
	}
	p.plan.rules[i].due++
	if p.blockedBefore.Has(p.keyOf(t)) {
		p.plan.held++
		return
	}
	if known := p.byUID[t.uid]; known != nil {
		known.rules |= 1 << i
		return
	}
	t.rules = 1 << i
	p.byUID[t.uid] = t
	if displaced := p.due.keep(t, p.maxTargets); displaced != nil {
		delete(p.byUID, displaced.uid)
		p.plan.complete = false
	}
}

// keyOf returns what a reference to an object has to name.
func (p *planner) keyOf(t *target) ownerKey { return ownerKey{p.kind, t.NamespacedName, t.uid} }

// finish returns the plan.
func (p *planner) finish() *plan {
	for _, t := range p.due.all {
		if p.plan.blocked.Has(p.keyOf(t)) {
			p.plan.held++
			continue
		}
		p.plan.targets = append(p.plan.targets, t)
	}
	for i := range p.plan.rules {
		count := &p.plan.rules[i]
		for _, t := range p.plan.targets {
			if t.rules&(1<<i) != 0 && len(count.examples) < maxExamples {
				count.examples = append(count.examples, nameOf(t))
			}
		}
	}
	return &p.plan
}

// nameOf returns the name of an object for people.
func nameOf(t *target) string {
	if t.Namespace == "" {
		return t.Name
	}
	return t.Namespace + "/" + t.Name
}

// targets are in an order in which the last is displaced.
type targets struct {
	all   []*target
	order func(a, b *target) int
}

// keep adds a target, and returns one if there are more than count.
func (h *targets) keep(t *target, count int) (displaced *target) {
	at, _ := slices.BinarySearchFunc(h.all, t, h.order)
	h.all = slices.Insert(h.all, at, t)
	if len(h.all) <= count {
		return nil
	}
	displaced = h.all[count]
	h.all = h.all[:count]
	return displaced
}
