// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package groupmove

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/storage/move"
)

// The model is a group of two resources, each with one object, in a main cluster with two kube-apiservers and in the Stores
// of annex. Two leaders run attempts, and take the steps that next returns, in world_test.go one external write at a
// time. Between any two writes, clients write, routes change late, an attempt ends or pauses, and answers are lost. The
// controller of groups does what its Plan returns, perhaps of a status that has changed since.

// value is the content of an object: absent, as it was at first, or written by a client.
type value uint8

const (
	absent  value = 0
	initial value = 9
)

// result is the end of a Migration.
type result uint8

const (
	unfinished result = iota
	completed
	failed
	canceled
)

// status is the status of the Migration, without its holder.
type status struct {
	phase                     uint8 // an index of phases
	started, switched, raised bool
	both                      bool // whether it names both resources
}

// addition is the state of the definition of the second resource.
type addition uint8

const (
	defined addition = iota
	addable          // the user may add it
	added            // the main cluster has it, annex does not yet
)

// record is the record of the move in a Store.
type record uint8

const (
	noRecord record = iota
	importCopying
	importCopied
	importOpen
	exporting
	ended
	adopted
)

// store is a resource in annex.
type store struct {
	value            value
	record           record
	holder           uint8 // the leader that has taken it over last
	frozen           uint8 // stands for the revision of the freeze, or 0
	closed, returned bool
	// written is set by a client's write since it was opened.
	written bool
	// pending is a write that the main cluster has accepted and the Store does not have yet.
	pending value
}

// attempt is the state in the memory of a leader.
type attempt struct {
	status
	on, canceled, undone bool
	after, step, pc      uint8 // indexes of steps, and of the actions of one
	records              uint8 // an index of allRecords
	found                [2]uint8
	held, watching       bool
	searched, one        bool     // whether it has found the resources, and the first one only
	frozen               [2]uint8 // the freezes that it relies on
}

// world is a state of the model. It is compared by value.
type world struct {
	operation uint8 // an index of operations
	status
	holder  uint8
	result  result
	deleted bool
	second  addition
	// taken is set if a takeover is recorded, and routes if a kube-apiserver sends requests to annex.
	taken  bool
	routes [2]bool
	// frozen is set if a policy freezes the main cluster's copy, and open if the temporary version is served.
	frozen, open bool
	main         [2]value
	stores       [2]store
	// expected are the values that clients rely on.
	expected [2]value
	writes   uint8
	direct   uint8 // how often objects may appear in annex, or vanish, through its own endpoint
	// mainBehind and annexBehind are set while a side has lower resource versions than clients have seen.
	mainBehind, annexBehind bool
	leaders                 [2]attempt
	faults                  uint8 // how many may still happen
	// stale is set while a controller of groups has a plan of an earlier status, which is seen.
	stale bool
	seen  status
}

var (
	operations = []hostingv1alpha1.MigrationOperation{hostingv1alpha1.MigrationMove, hostingv1alpha1.MigrationRollback, hostingv1alpha1.MigrationFinalize}
	phases     = []hostingv1alpha1.MigrationPhase{
		"", hostingv1alpha1.MigrationPending, hostingv1alpha1.MigrationCopying, hostingv1alpha1.MigrationFollowing, hostingv1alpha1.MigrationSwitching,
		hostingv1alpha1.MigrationObserving, hostingv1alpha1.MigrationCleaning,
	}
	allRecords = []records{
		recordsUnknown, recordsHeld, recordsGone, recordsVacant, recordsOccupied, recordsAdopted, recordsDisputed, recordsDiscarded, recordsCopying, recordsFollowing, recordsOpening, recordsOpen,
	}
	states = []move.State{"", move.Absent, occupied, move.Copying, move.Following, move.Switched, move.Adopted, move.Cleaned}
	steps  = []step{
		"", stepBegin, stepHold, stepRefuse, stepAdopt, stepRoute, stepCopy, stepSwitch, stepOpenRest, stepRecord, stepSettle, stepObserve, stepUndo,
		stepDiscard, stepThaw, stepOpen, stepSync, stepReturn, stepClean, stepClose, stepAbandon, stepDone, stepGoOn,
	}
)

func indexOf[T comparable](all []T, of T) uint8 {
	i := slices.Index(all, of)
	if i < 0 {
		panic(fmt.Sprintf("the model lacks %v", of))
	}
	return uint8(i)
}

func (w *world) is(phase hostingv1alpha1.MigrationPhase) bool { return phases[w.phase] == phase }

// serves reports whether annex answers reads of a resource.
func (s store) serves() bool { return !s.closed && !s.returned }

// wrong returns what must never be, or an empty string.
func (w *world) wrong() string {
	for i, s := range w.stores {
		switch {
		case !w.taken && w.mainBehind:
			return "the main cluster serves resource versions below those that clients have from annex"
		case w.routes[0] && s.serves() && w.annexBehind && (i == 0 || w.second == defined):
			return "annex serves resource versions below those that clients have from the main cluster"
		case w.result == unfinished:
			continue
		case w.open:
			return "the temporary version is left"
		}
		if wrong := w.wrongAtEnd(s, w.main[i], w.expected[i]); wrong != "" {
			return fmt.Sprintf("resource %d: %s", i, wrong)
		}
	}
	return ""
}

// wrongAtEnd returns what is wrong with a resource once the Migration has finished.
func (w *world) wrongAtEnd(s store, main, expected value) string {
	annex := w.switched && operations[w.operation] == hostingv1alpha1.MigrationMove ||
		operations[w.operation] == hostingv1alpha1.MigrationRollback && !w.switched || operations[w.operation] == hostingv1alpha1.MigrationFinalize
	switch {
	case annex && !w.taken:
		return "annex does not get the routes"
	case annex && (!s.serves() || s.frozen > 0):
		return "annex does not take writes"
	case annex && s.value != expected:
		return fmt.Sprintf("annex has %d, clients rely on %d", s.value, expected)
	case annex && s.pending != absent:
		return fmt.Sprintf("the write %d was neither applied nor named", s.pending)
	case annex && !w.frozen:
		return "the main cluster's copy takes writes, too"
	case !annex && w.taken:
		return "the main cluster does not get the routes"
	case !annex && w.frozen:
		return "the main cluster takes no writes"
	case !annex && main != expected:
		return fmt.Sprintf("the main cluster has %d, clients rely on %d", main, expected)
	case s.record == exporting || s.record == importCopying || s.record == importCopied:
		return "a record is left"
	case w.result == completed && operations[w.operation] == hostingv1alpha1.MigrationFinalize && main != absent:
		return "the main cluster's copy is left"
	}
	return ""
}

// explorer has the states that were reached.
type explorer struct {
	index  map[world]int32
	states []world
	from   []int32
	label  []string
	// on has the next state of each if no client acts and nothing fails, -1 at an end.
	on []int32
}

func (e *explorer) add(w world, from int32, label string) int32 {
	if i, seen := e.index[w]; seen {
		return i
	}
	i := int32(len(e.states))
	e.index[w] = i
	e.states, e.from, e.label, e.on = append(e.states, w), append(e.from, from), append(e.label, label), append(e.on, -1)
	return i
}

// explore reaches all states, and returns the shortest list of actions that leads to something wrong.
func explore(first world) (states int, trace string) {
	e := &explorer{index: map[world]int32{}}
	e.add(first, -1, "")
	for i := int32(0); int(i) < len(e.states); i++ {
		w := e.states[i]
		if wrong := w.wrong(); wrong != "" {
			return len(e.states), e.trace(i, wrong)
		}
		w.each(func(label string, next world, faultless bool) {
			to := e.add(next, i, label)
			if faultless && e.on[i] < 0 && to != i {
				e.on[i] = to
			}
		})
	}
	return len(e.states), e.stuck()
}

// stuck returns the way to a state from which the Migration does not finish, although nothing fails any more.
func (e *explorer) stuck() string {
	ends := make([]int8, len(e.states)) // 1 if it finishes, -1 while it is followed
	for i := range e.states {
		var path []int32
		at := int32(i)
		for ; ends[at] == 0 && e.states[at].result == unfinished; at = e.on[at] {
			ends[at] = -1
			path = append(path, at)
			if e.on[at] < 0 {
				return e.trace(int32(i), fmt.Sprintf("nothing can happen after: %s", e.continued(int32(i))))
			}
		}
		if ends[at] == -1 {
			return e.trace(int32(i), fmt.Sprintf("it never finishes: %s", e.continued(int32(i))))
		}
		for _, passed := range path {
			ends[passed] = 1
		}
	}
	return ""
}

func (e *explorer) continued(i int32) string {
	var labels []string
	for range 40 {
		next := e.on[i]
		if next < 0 {
			break
		}
		labels = append(labels, e.states[i].first())
		i = next
	}
	return strings.Join(labels, ", ")
}

// first returns the first action that is no fault.
func (w *world) first() (first string) {
	w.each(func(label string, next world, faultless bool) {
		if faultless && first == "" && next != *w {
			first = label
		}
	})
	return first
}

func (e *explorer) trace(i int32, wrong string) string {
	lines := []string{fmt.Sprintf("=> %s\n   %+v", wrong, e.states[i])}
	for ; e.from[i] >= 0; i = e.from[i] {
		lines = append(lines, "   "+e.label[i])
	}
	slices.Reverse(lines)
	return strings.Join(lines, "\n")
}

// TestModel reaches every state of each operation, with faults between any two writes.
func TestModel(t *testing.T) {
	t.Parallel()
	inMain := world{main: [2]value{initial, initial}, expected: [2]value{initial, initial}, annexBehind: true}
	inAnnex := world{
		taken: true, routes: [2]bool{true, true}, frozen: true, mainBehind: true, main: [2]value{initial, initial}, expected: [2]value{initial, initial},
		stores: [2]store{{value: initial, record: importOpen}, {value: initial, record: importOpen}},
	}
	adding := inMain
	adding.second, adding.main[1], adding.expected[1], adding.writes = addable, absent, absent, 1
	restored := inMain
	restored.main, restored.expected, restored.stores = [2]value{}, [2]value{}, [2]store{{value: initial}, {value: initial}}
	restored.direct = 1
	disputed := inMain
	disputed.direct, disputed.writes = 1, maxWrites
	for name, test := range map[string]struct {
		operation hostingv1alpha1.MigrationOperation
		first     world
	}{
		"Move":                                   {hostingv1alpha1.MigrationMove, inMain},
		"Move while a definition is added":       {hostingv1alpha1.MigrationMove, adding},
		"Move of what annex has":                 {hostingv1alpha1.MigrationMove, restored},
		"Move with objects that appear in annex": {hostingv1alpha1.MigrationMove, disputed},
		"Rollback":                               {hostingv1alpha1.MigrationRollback, inAnnex},
		"Finalize":                               {hostingv1alpha1.MigrationFinalize, inAnnex},
	} {
		test.first.operation = indexOf(operations, test.operation)
		for _, few := range []world{{faults: faults, writes: 1}, {faults: faults - 1}} {
			if test.first.second == addable && few.faults == faults {
				continue // too many states
			}
			t.Run(fmt.Sprintf("%s, %d faults", name, few.faults), func(t *testing.T) {
				t.Parallel()
				first := test.first
				first.faults, first.writes = few.faults, max(first.writes, few.writes)
				states, trace := explore(first)
				t.Logf("%d states", states)
				if trace != "" {
					t.Error("\n" + trace)
				}
			})
		}
	}
}

// stateOf returns the State that an Importer returns for a record.
func stateOf(s store) move.State {
	switch {
	case s.record == importCopying:
		return move.Copying
	case s.record == importCopied:
		return move.Following
	case s.record == importOpen:
		return move.Switched
	case s.record == ended:
		return move.Cleaned
	case s.record == adopted:
		return move.Adopted
	case s.value != absent:
		return occupied
	}
	return move.Absent
}
