// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package groupmove

import (
	"fmt"
	"slices"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/annex-dev/annex/pkg/aggregated/group"
	"github.com/annex-dev/annex/pkg/aggregated/group/grouptest"
	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/storage/move"
)

const (
	// faults bounds the ends of attempts, second leaders, lost answers, errors and refusals.
	faults = 2
	// maxWrites bounds the writes of clients. In a world with all faults there are half as many.
	maxWrites = 2
)

// outcome is the result of an action.
type outcome uint8

const (
	succeeds outcome = iota
	waits            // for something else to happen
	fails            // another attempt continues
	refuses          // for good
	rereads          // ends the step, after which the records are unknown
)

// action is a write of an attempt, or something that it waits for.
type action struct {
	name string
	// preparing is set for what ends when the Migration is deleted, and reported for a write of the status, which never
	// fails for good.
	preparing, reported bool
	do                  func(w *world, leader uint8) outcome
}

// Actions on the status, the main cluster and routes.

// write writes the status, which fails once another attempt has taken the Migration over.
func write(name string, change func(s *status)) action {
	return action{name: name, reported: true, do: func(w *world, leader uint8) outcome {
		a := w.attempt(leader)
		change(&a.status) // which a later write of the attempt has, too
		a.both = a.both && !a.searched || a.searched && !a.one
		if w.holder != leader {
			return fails
		}
		w.status = a.status
		return succeeds
	}}
}

func setPhase(phase hostingv1alpha1.MigrationPhase) action {
	return write("write phase "+string(phase), func(s *status) { s.phase = indexOf(phases, phase) })
}

// inMain changes the main cluster, whose writes read the holder.
func inMain(name string, change func(w *world)) action {
	return action{name: name, do: func(w *world, leader uint8) outcome {
		if w.holder != leader {
			return fails
		}
		change(w)
		return succeeds
	}}
}

func waitFor(name string, holds func(w *world) bool) action {
	return action{name: "wait until " + name, do: func(w *world, _ uint8) outcome {
		if holds(w) {
			return succeeds
		}
		return waits
	}}
}

// atOnce does the same for each resource, in one action.
func atOnce(name string, do func(w *world, a *attempt, leader uint8, i int, s *store) outcome) action {
	return action{name: name, do: func(w *world, leader uint8) outcome {
		for i := range w.stores {
			if i == 1 && w.attempt(leader).one {
				break
			}
			if got := do(w, w.attempt(leader), leader, i, &w.stores[i]); got != succeeds {
				return got
			}
		}
		return succeeds
	}}
}

// both does the same for each resource, one after the other.
func both(name string, do func(w *world, a *attempt, leader uint8, i int, s *store) outcome) []action {
	var all []action
	for i := range 2 {
		all = append(all, action{name: fmt.Sprintf("%s %d", name, i), do: func(w *world, leader uint8) outcome {
			if i == 1 && w.attempt(leader).one {
				return succeeds
			}
			return do(w, w.attempt(leader), leader, i, &w.stores[i])
		}})
	}
	return all
}

func preparing(all ...action) []action {
	for i := range all {
		all[i].preparing = true
	}
	return all
}

func (w *world) attempt(leader uint8) *attempt { return &w.leaders[leader-1] }

// isHeld is the condition that the record is as the attempt has written it.
func (s *store) isHeld(a *attempt, leader uint8) bool { return a.held && s.holder == leader }

var refuseScript = []action{{name: "refuse", do: func(*world, uint8) outcome { return refuses }}}

// leaves has the state of the Stores after steps of a Move.
var leaves = map[step]records{stepCopy: recordsFollowing, stepSwitch: recordsOpen, stepOpenRest: recordsOpen, stepAdopt: recordsAdopted}

// scripts are the actions of each step.
var scripts = func() map[hostingv1alpha1.MigrationOperation]map[step][]action {
	finalize := map[step][]action{
		stepBegin: preparing(write("record the confirmation", func(s *status) {
			s.started, s.switched, s.phase = true, true, indexOf(phases, hostingv1alpha1.MigrationCleaning)
		})),
		stepOpen:  {inMain("open the copy", func(w *world) { w.open = true })},
		stepClean: {inMain("delete the copy", func(w *world) { w.main = [2]value{} })},
		stepClose: {inMain("close the copy", func(w *world) { w.open = false })},
	}
	return map[hostingv1alpha1.MigrationOperation]map[step][]action{
		hostingv1alpha1.MigrationMove: moveScripts(), hostingv1alpha1.MigrationRollback: rollbackScripts(), hostingv1alpha1.MigrationFinalize: finalize,
	}
}()

func start() action {
	return write("record the start", func(s *status) {
		s.started, s.phase = true, max(s.phase, indexOf(phases, hostingv1alpha1.MigrationPending))
	})
}

// fence finds the resources, writes the records without a condition, and then checks the holder of the Migration.
func fence(of func(a *attempt, leader uint8, i int, s *store)) []action {
	return append(both("fence", func(w *world, a *attempt, leader uint8, i int, s *store) outcome {
		if !a.searched {
			a.one = w.second == addable || w.second == added && (a.canceled || phases[a.phase] == hostingv1alpha1.MigrationSwitching)
			if w.second == added && !a.one {
				return waits
			}
			a.searched = true
		}
		of(a, leader, i, s)
		a.held = true
		return succeeds
	}), inMain("check the holder", func(*world) {}))
}

func moveScripts() map[step][]action {
	fences := fence(func(a *attempt, leader uint8, i int, s *store) {
		if s.record != noRecord {
			s.holder = leader
		}
		switch a.found[i] = indexOf(states, stateOf(*s)); {
		case a.one:
			a.records = indexOf(allRecords, summary([]move.State{states[a.found[0]]}))
			a.found = [2]uint8{}
		case i == 1:
			a.records = indexOf(allRecords, summary([]move.State{states[a.found[0]], states[a.found[1]]}))
			a.found = [2]uint8{}
		}
	})
	withdrawn := waitFor("the takeover is withdrawn", func(w *world) bool { return !w.taken })
	returned := waitFor("all kube-apiservers serve the group", func(w *world) bool { return !w.routes[0] && !w.routes[1] })
	routed := action{name: "wait until a kube-apiserver sends requests to annex", do: func(w *world, _ uint8) outcome {
		switch {
		case w.routes[0]:
			return succeeds
		case w.mayPublish():
			return waits
		}
		return fails // after a while
	}}
	ready := action{name: "check that no definition was added", do: func(w *world, leader uint8) outcome {
		if w.attempt(leader).one && w.second != addable {
			return fails
		}
		return succeeds
	}}
	freeze := inMain("freeze the main cluster", func(w *world) { w.frozen = true })
	open := func(condition func(a *attempt, leader uint8, s *store) bool) func(*world, *attempt, uint8, int, *store) outcome {
		return func(w *world, a *attempt, leader uint8, _ int, s *store) outcome {
			switch {
			case s.record == importOpen:
				return succeeds
			case s.record != importCopied || !condition(a, leader, s):
				return fails
			}
			s.record, s.closed, s.written, w.annexBehind, w.mainBehind = importOpen, false, false, false, true
			return succeeds
		}
	}
	takes := func(_ *attempt, leader uint8, s *store) bool {
		s.holder = leader
		return true
	}
	adopt := preparing(both("adopt", func(_ *world, _ *attempt, leader uint8, _ int, s *store) outcome {
		if s.record != noRecord && s.record != adopted {
			return fails
		}
		s.record, s.holder = adopted, leader
		return succeeds
	})...)
	return map[step][]action{
		stepBegin:  preparing(start()),
		stepHold:   fences,
		stepRefuse: refuseScript,
		stepAdopt: {
			preparing(freeze)[0],
			{name: "check that the main cluster is empty", preparing: true, do: func(w *world, _ uint8) outcome {
				if w.main != [2]value{} {
					return refuses
				}
				return succeeds
			}},
			{name: "raise annex's resource versions", preparing: true, do: raise},
			adopt[0], adopt[1],
		},
		stepRoute: {setPhase(hostingv1alpha1.MigrationSwitching), routed},
		stepCopy: slices.Concat(
			preparing(both("claim", func(_ *world, _ *attempt, leader uint8, _ int, s *store) outcome {
				switch {
				case s.record != noRecord:
					return succeeds // Copy fails, if it has ended
				case s.value != absent: // it was created since the records were read
					return rereads
				}
				s.record, s.holder, s.closed = importCopying, leader, true
				return succeeds
			})...),
			preparing(setPhase(hostingv1alpha1.MigrationCopying)),
			[]action{preparing(atOnce("copy", func(w *world, a *attempt, leader uint8, i int, s *store) outcome {
				if s.record != importCopying && s.record != importCopied || w.routes[0] {
					return fails
				}
				s.holder, s.record, s.value, s.pending = leader, importCopied, w.main[i], absent
				return succeeds
			}))[0]},
		),
		stepSwitch: slices.Concat(
			preparing(atOnce("follow", func(w *world, a *attempt, leader uint8, i int, s *store) outcome {
				if s.record != importCopied {
					return fails
				}
				s.holder, s.value, s.pending, a.watching = leader, w.main[i], absent, true
				return succeeds
			}), setPhase(hostingv1alpha1.MigrationFollowing), ready, withdrawn, returned),
			[]action{setPhase(hostingv1alpha1.MigrationSwitching), routed, atOnce("apply the last changes of", func(w *world, a *attempt, leader uint8, i int, s *store) outcome {
				if !s.isHeld(a, leader) || s.record != importCopied {
					return fails
				}
				s.value, s.pending = w.main[i], absent
				return succeeds
			})},
			both("open", open(func(a *attempt, leader uint8, s *store) bool { return s.isHeld(a, leader) })),
		),
		stepOpenRest: both("open the rest", open(takes)),
		stepRecord:   {write("record the switch", func(s *status) { s.switched, s.phase = true, indexOf(phases, hostingv1alpha1.MigrationObserving) })},
		stepSettle: {
			freeze,
			atOnce("apply late writes", func(w *world, a *attempt, leader uint8, i int, s *store) outcome {
				if a.watching && s.isHeld(a, leader) && s.record == importOpen {
					w.applyLate(i)
				}
				return succeeds
			}),
			inMain("open the copy", func(w *world) { w.open = true }),
			atOnce("reconcile", func(w *world, _ *attempt, leader uint8, i int, s *store) outcome {
				switch {
				case s.record == noRecord || s.record == adopted || s.record == ended:
					return succeeds
				case s.record != importOpen:
					return fails
				}
				s.holder = leader
				w.applyLate(i)
				return succeeds
			}),
			{name: "name what was not copied", do: func(w *world, leader uint8) outcome {
				if s := &w.stores[1]; s.record == noRecord && s.pending != absent {
					s.pending, w.expected[1] = absent, s.value
				}
				return succeeds
			}},
			inMain("close the copy", func(w *world) { w.open = false }),
		},
		stepObserve: {{name: "raise annex's resource versions", do: raise}},
		stepUndo:    {setPhase(hostingv1alpha1.MigrationFollowing), withdrawn, returned},
		stepDiscard: slices.Concat(
			[]action{withdrawn, returned},
			both("discard", func(_ *world, a *attempt, leader uint8, _ int, s *store) outcome {
				switch {
				case s.record != noRecord && !s.isHeld(a, leader):
					return fails
				case s.record == importCopying || s.record == importCopied:
					*s = store{holder: s.holder}
				}
				s.record, s.holder = ended, leader
				return succeeds
			}),
			[]action{inMain("forget the freeze", func(w *world) { w.frozen = false })},
		),
	}
}

func raise(w *world, _ uint8) outcome {
	w.annexBehind = false
	return succeeds
}

// applyLate applies what the main cluster accepted after the switch, unless a client has written the object in annex
// since: then an event names it.
func (w *world) applyLate(i int) {
	s := &w.stores[i]
	if s.pending != absent && !s.written {
		s.value, w.expected[i] = s.pending, s.pending
	}
	s.pending = absent
}

func rollbackScripts() map[step][]action {
	closeCopy := inMain("close the copy", func(w *world) { w.open = false })
	thaw := both("thaw", func(_ *world, a *attempt, _ uint8, i int, s *store) outcome {
		if s.frozen == a.frozen[i] {
			s.frozen = 0
		}
		return succeeds
	})
	synchronize := func(what string) action {
		return atOnce(what, func(w *world, _ *attempt, _ uint8, i int, s *store) outcome {
			if !w.open {
				return fails
			}
			w.main[i] = s.value
			return succeeds
		})
	}
	return map[step][]action{
		stepBegin: preparing(start()),
		stepHold: fence(func(a *attempt, leader uint8, i int, s *store) {
			switch {
			case s.record == ended:
				a.found[i] = 1
			case s.record == exporting || !s.returned:
				s.record, s.holder = exporting, leader
			}
			a.frozen[i] = s.frozen
			if a.records = indexOf(allRecords, recordsHeld); i == 1 && a.found != [2]uint8{} {
				a.records = indexOf(allRecords, recordsDiscarded)
			}
		}),
		stepRefuse: refuseScript,
		stepThaw:   thaw,
		stepOpen:   preparing(inMain("open the copy", func(w *world) { w.open = true })),
		stepSync: slices.Concat(
			preparing(setPhase(hostingv1alpha1.MigrationFollowing), synchronize("synchronize"),
				inMain("allow writes in the main cluster", func(w *world) { w.frozen = false })),
			both("freeze", func(w *world, a *attempt, leader uint8, i int, s *store) outcome {
				if !s.isHeld(a, leader) {
					return fails
				}
				s.frozen = w.newFreeze(i)
				a.frozen[i] = s.frozen
				return succeeds
			}),
			[]action{synchronize("drain"), closeCopy, setPhase(hostingv1alpha1.MigrationSwitching)},
		),
		stepReturn: slices.Concat(
			[]action{closeCopy},
			// No attempt thaws in this phase. The Stores also compare the record and the freeze.
			both("close", func(_ *world, _ *attempt, _ uint8, _ int, s *store) outcome {
				s.closed = true
				return succeeds
			}),
			[]action{
				{name: "raise the main cluster's revision", do: func(w *world, _ uint8) outcome {
					w.mainBehind = w.stores[0].serves() || w.stores[1].serves()
					return succeeds
				}},
				write("record that it was raised", func(s *status) { s.raised, s.phase = true, indexOf(phases, hostingv1alpha1.MigrationSwitching) }),
				waitFor("a kube-apiserver serves the group", func(w *world) bool { return !w.routes[0] }),
			},
			both("return", func(_ *world, _ *attempt, _ uint8, _ int, s *store) outcome {
				s.returned, s.closed, s.frozen = true, true, 0
				return succeeds
			}),
			[]action{write("record the switch", func(s *status) { s.switched, s.phase = true, indexOf(phases, hostingv1alpha1.MigrationCleaning) })},
		),
		stepClean: both("delete", func(_ *world, _ *attempt, _ uint8, _ int, s *store) outcome {
			s.value, s.record = absent, noRecord
			return succeeds
		}),
		stepAbandon: slices.Concat(thaw, []action{closeCopy, inMain("freeze the main cluster", func(w *world) { w.frozen = true })},
			both("end the export", func(_ *world, a *attempt, leader uint8, _ int, s *store) outcome {
				if s.record != ended && !s.isHeld(a, leader) {
					return fails
				}
				s.record, s.frozen = ended, 0
				return succeeds
			})),
	}
}

// newFreeze returns what stands for a new revision.
func (w *world) newFreeze(i int) uint8 {
	used := []uint8{w.stores[i].frozen, w.leaders[0].frozen[i], w.leaders[1].frozen[i]}
	for freeze := uint8(1); ; freeze++ {
		if !slices.Contains(used, freeze) {
			return freeze
		}
	}
}

// each calls visit for all that may happen next. What faultless is set for happens at last, unless something else does.
func (w *world) each(visit func(label string, next world, faultless bool)) {
	w.eachRoute(visit)
	// The leader that holds the Migration comes first.
	for _, leader := range []uint8{max(1, w.holder), 3 - max(1, w.holder)} {
		w.eachStep(leader, visit)
	}
	if w.result != unfinished && !w.leaders[0].on && !w.leaders[1].on {
		return
	}
	w.eachStart(visit)
	w.eachRequest(visit)
	for i, a := range w.leaders {
		if next := *w; a.on && w.holder != uint8(i+1) {
			next.leaders[i] = attempt{}
			visit(fmt.Sprintf("leader %d: gives up what it waits for", i+1), next, true)
		}
	}
}

// eachRoute visits each change of the takeover by the controller of groups, and of the route of a kube-apiserver.
func (w *world) eachRoute(visit func(label string, next world, faultless bool)) {
	if next := *w; next.perform(w.status, w.result != unfinished) {
		visit(fmt.Sprintf("the controller of groups: takeover %t", next.taken), next, true)
	}
	if next := *w; w.stale {
		next.stale, next.seen = false, status{}
		label := "the stale controller of groups: nothing"
		if !w.group(w.seen, false).IsStale(w.migrations(w.status, w.result != unfinished)) && next.perform(w.seen, false) {
			label = fmt.Sprintf("the stale controller of groups: takeover %t", next.taken)
		}
		visit(label, next, false)
	} else if w.faults > 0 && w.result == unfinished && w.plans(w.status, false) != w.taken {
		next.stale, next.seen = true, status{phase: w.phase, started: w.started, raised: w.raised}
		next.faults--
		visit("a controller of groups pauses", next, false)
	}
	// It makes no definition while a version is routed to annex, and then needs longer than the routes.
	moved, returned := w.is(hostingv1alpha1.MigrationObserving) || w.result != unfinished, !w.taken && w.routes == [2]bool{}
	if next := *w; w.second == added && (moved || returned && !w.is(hostingv1alpha1.MigrationSwitching)) {
		next.second = defined
		visit("the controller of groups: make the definition", next, true)
	}
	for i, route := range w.routes {
		if next := *w; route != w.taken {
			next.routes[i] = w.taken
			visit(fmt.Sprintf("kube-apiserver %d: route to annex %t", i, w.taken), next, true)
		}
	}
}

// mayPublish reports whether the APIServices may hide what the main cluster defines.
func (w *world) mayPublish() bool { return w.second == addable || w.second == defined && w.both }

// perform does what the controller of groups plans by a status, and reports whether it changes anything.
func (w *world) perform(seen status, finished bool) bool {
	taken := w.plans(seen, finished)
	if taken == w.taken || taken && !w.mayPublish() {
		return false
	}
	w.taken = taken
	for i, s := range w.stores {
		if taken && s.record != importOpen && s.serves() { // clients get what annex had before
			w.expected[i] = s.value
		}
	}
	return true
}

// migrations has the Migration with a status.
func (w *world) migrations(of status, finished bool) []*group.Migration {
	migration := &group.Migration{
		Spec:   hostingv1alpha1.MigrationSpec{Group: grouptest.Group, Operation: operations[w.operation]},
		Status: hostingv1alpha1.MigrationStatus{Phase: phases[of.phase], Resources: []hostingv1alpha1.MigrationResourceStatus{{Name: grouptest.Widgets}}},
	}
	if of.started {
		migration.Status.StartTime = &metav1.Time{}
	}
	if of.raised {
		migration.Status.LastResourceVersion = 1
	}
	if finished {
		migration.Status.Phase = hostingv1alpha1.MigrationCompleted
	}
	return []*group.Migration{migration}
}

// group returns the State that the controller of groups plans for. One definition stands for all.
func (w *world) group(seen status, finished bool) *group.State {
	annex, hosted := grouptest.CRD(grouptest.Widgets, grouptest.Follower), &group.HostedResource{ObjectMeta: metav1.ObjectMeta{Name: grouptest.Widgets}}
	if w.taken {
		hosted.Status.Takeover = new(group.TakeoverOf(annex))
	}
	return group.New(grouptest.Group, group.Identity{PublishedBy: grouptest.PublishedBy, Store: grouptest.Store}, group.Objects{
		Main: []*group.Definition{grouptest.CRD(grouptest.Widgets, grouptest.Labelled)}, Annex: []*group.Definition{annex},
		Hosted: []*group.HostedResource{hosted}, Migrations: w.migrations(seen, finished),
	})
}

// plans returns whether the takeover is recorded after the Plan of a group.
func (w *world) plans(seen status, finished bool) bool {
	key := world{operation: w.operation, status: seen, taken: w.taken, deleted: finished}
	known, found := takeovers.Load(key)
	if !found {
		plan := w.group(seen, finished).Plan()
		known = (w.taken || len(plan.Record) > 0) && len(plan.Withdraw) == 0
		takeovers.Store(key, known)
	}
	return known.(bool)
}

// takeovers has the results of plans.
var takeovers sync.Map

// eachStart begins an attempt.
func (w *world) eachStart(visit func(label string, next world, faultless bool)) {
	for i, a := range w.leaders {
		other := w.leaders[1-i]
		if w.result != unfinished || a.on || other.on && w.faults == 0 {
			continue
		}
		next := *w
		if other.on {
			next.faults--
		}
		next.holder = uint8(i + 1)
		next.leaders[i] = attempt{status: w.status, on: true}
		visit(fmt.Sprintf("leader %d: fence the Migration", i+1), next, !other.on && i == 0)
	}
	if next := *w; !w.deleted && w.result == unfinished {
		next.deleted = true
		visit("user: delete the Migration", next, false)
	}
	if next := *w; w.second == addable && w.result == unfinished {
		next.second = added
		visit("user: add a definition", next, false)
	}
}

// eachRequest visits each write of a client.
func (w *world) eachRequest(visit func(label string, next world, faultless bool)) {
	for i := range w.stores {
		if i == 1 && w.second == addable {
			break
		}
		if w.writes < maxWrites {
			for server, route := range w.routes {
				if server == 1 && route == w.routes[0] {
					continue
				}
				if next := *w; next.request(i, route) {
					visit(fmt.Sprintf("client: write %d to resource %d through kube-apiserver %d, annex %t", next.writes, i, server, route), next, false)
				}
			}
		}
		if s := w.stores[i]; w.direct > 0 && s.record != importOpen && s.serves() {
			next := *w
			next.direct--
			next.stores[i].value = initial - s.value
			if w.taken {
				next.expected[i] = next.stores[i].value
			}
			visit(fmt.Sprintf("client: resource %d has %d in annex itself", i, next.stores[i].value), next, false)
		}
	}
}

// request writes an object, if the side that it gets to performs it.
func (w *world) request(i int, annex bool) bool {
	s := &w.stores[i]
	w.writes++
	n := value(w.writes)
	if annex {
		if s.closed || s.frozen != 0 || i == 1 && w.second != defined {
			return false
		}
		s.value, s.written, w.expected[i], w.mainBehind = n, true, n, true
		return true
	}
	if w.frozen {
		return false
	}
	w.main[i], s.pending = n, n
	if s.record != importOpen { // otherwise it is late
		w.expected[i] = n
	}
	if w.stores[0].record != importOpen && w.stores[1].record != importOpen {
		w.annexBehind = true
	}
	return true
}

// eachStep is the next action of an attempt, with what may happen to it.
func (w *world) eachStep(leader uint8, visit func(label string, next world, faultless bool)) {
	if !w.attempt(leader).on {
		return
	}
	next := *w
	a := next.attempt(leader)
	if a.step == 0 && !next.decide(leader, visit) {
		return
	}
	does := scripts[operations[w.operation]][steps[a.step]][a.pc]
	label := fmt.Sprintf("leader %d: %s: %s", leader, steps[a.step], does.name)
	if does.preparing && w.deleted && !a.canceled && (steps[a.step] != stepBegin || phases[a.phase] != hostingv1alpha1.MigrationSwitching) {
		a.cancel()
		visit(label+": the Migration was deleted", next, true)
		return
	}
	performed := next
	got := does.do(&performed, leader)
	if got == waits {
		next.eachFault(leader, does, label, false, visit)
		return
	}
	applied := performed
	performed.after(leader, got)
	visit(label, performed, true)
	applied.eachFault(leader, does, label, got == succeeds, visit)
	next.eachFault(leader, does, label, false, visit)
}

// eachFault visits each fault of an attempt after an action, or instead of it.
func (w *world) eachFault(leader uint8, does action, label string, applied bool, visit func(label string, next world, faultless bool)) {
	if w.faults == 0 {
		return
	}
	what := ": fails"
	if applied {
		what = ": the answer is lost"
	}
	failing := *w
	failing.faults--
	failing.after(leader, fails)
	visit(label+what, failing, false)
	if applied {
		return
	}
	crashing, refusing := *w, *w
	crashing.faults--
	*crashing.attempt(leader) = attempt{}
	visit(label+": crashes", crashing, false)
	if does.reported {
		return
	}
	refusing.faults--
	refusing.after(leader, refuses)
	visit(label+": fails for good", refusing, false)
}

// decide calls next. It returns false if the attempt ends.
func (w *world) decide(leader uint8, visit func(label string, next world, faultless bool)) bool {
	a := w.attempt(leader)
	decided := next(situation{
		operation: operations[w.operation], phase: phases[a.phase], started: a.started, switched: a.switched,
		canceled: a.canceled, undone: a.undone, records: allRecords[a.records], after: steps[a.after],
	})
	switch decided {
	case stepDone:
		held := w.holder == leader
		switch {
		case !held:
		case !a.canceled:
			w.result = completed
		case w.deleted:
			w.result = canceled
		default:
			w.result = failed
		}
		*a = attempt{}
		visit(fmt.Sprintf("leader %d: finish", leader), *w, true)
		return false
	case stepGoOn:
		w.end(leader)
		visit(fmt.Sprintf("leader %d: it is too late to cancel", leader), *w, true)
		return false
	}
	a.step, a.pc = indexOf(steps, decided), 0
	return true
}

// after goes on after an action.
func (w *world) after(leader uint8, got outcome) {
	a := w.attempt(leader)
	switch got {
	case succeeds:
		if a.pc++; int(a.pc) == len(scripts[operations[w.operation]][steps[a.step]]) {
			if now, known := leaves[steps[a.step]]; known {
				a.records = indexOf(allRecords, now)
			}
			a.after, a.step, a.pc = a.step, 0, 0
		}
	case fails:
		switch at := steps[a.step]; {
		case at == stepSwitch && phases[a.phase] == hostingv1alpha1.MigrationSwitching && a.pc > 5:
			a.after, a.step, a.pc, a.records, a.watching = a.step, 0, 0, 0, false // next decides
			return
		case at == stepSync && phases[a.phase] != hostingv1alpha1.MigrationSwitching:
			for i := range w.stores {
				if s := &w.stores[i]; s.frozen == a.frozen[i] {
					s.frozen = 0
				}
			}
		}
		w.end(leader)
	case rereads:
		a.after, a.step, a.pc, a.records = a.step, 0, 0, 0
	case refuses:
		if a.canceled {
			w.end(leader)
			return
		}
		a.cancel()
	}
}

// end ends an attempt with an error, which it writes.
func (w *world) end(leader uint8) {
	if w.holder == leader {
		w.status = w.attempt(leader).status
	}
	*w.attempt(leader) = attempt{}
}

// cancel makes an attempt cancel, like Cancel.
func (a *attempt) cancel() {
	a.canceled, a.records, a.after, a.step, a.pc, a.watching, a.searched, a.one = true, 0, 0, 0, 0, false, false, false
}
