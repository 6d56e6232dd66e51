// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package groupmove

import (
	"slices"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/storage/move"
)

// situation is the input of next: the status of a Migration, what the Stores record, and the last step.
type situation struct {
	operation hostingv1alpha1.MigrationOperation
	phase     hostingv1alpha1.MigrationPhase
	// started and switched are set if the status has StartTime and SwitchTime.
	started, switched bool
	// canceled is set if the Migration was deleted or has failed for good: what precedes the switch is undone.
	canceled bool
	// undone is set once another Migration undoes this one, and deleted once a moved group has no definitions.
	undone, deleted bool
	records         records
	// after is the last step of this attempt.
	after step
}

// records summarizes the records of a Migration in annex's Stores, for all resources of a group together.
type records string

const (
	// recordsUnknown is the value until the attempt has fenced all earlier ones in the Stores.
	recordsUnknown records = ""
	// recordsHeld is the value of Rollbacks after that. Their progress is in the phase of the Migration.
	recordsHeld records = "held"
	// recordsGone is a group without resources.
	recordsGone records = "gone"
	// recordsVacant have neither a record nor objects, recordsOccupied have objects of their own.
	recordsVacant   records = "vacant"
	recordsOccupied records = "occupied"
	// recordsAdopted are recorded to serve their own objects.
	recordsAdopted records = "adopted"
	// recordsDisputed are closed for a copy, but a resource of one has objects that are not of the copy.
	recordsDisputed records = "disputed"
	// recordsDiscarded are of a copy that an attempt has begun to delete.
	recordsDiscarded records = "discarded"
	// recordsCopying are closed with a part of the objects, recordsFollowing with all.
	recordsCopying   records = "copying"
	recordsFollowing records = "following"
	// recordsOpening are open in part, and all have every change. recordsOpen serve the group.
	recordsOpening records = "opening"
	recordsOpen    records = "open"
)

// occupied is the State of a resource whose Store has objects and no record.
const occupied move.State = "Occupied"

// summary returns what the Stores record, by the State of each resource.
func summary(states []move.State) records {
	has := func(of ...move.State) bool {
		return slices.ContainsFunc(states, func(state move.State) bool { return slices.Contains(of, state) })
	}
	switch claimed := has(move.Copying, move.Following); {
	case len(states) == 0:
		return recordsGone
	case has(move.Switched) && claimed:
		return recordsOpening
	case has(move.Switched): // a definition may have been added since
		return recordsOpen
	case has(move.Adopted):
		return recordsAdopted
	case has(move.Cleaned):
		return recordsDiscarded
	case has(occupied) && claimed:
		return recordsDisputed
	case has(occupied):
		return recordsOccupied
	case !claimed:
		return recordsVacant
	case has(move.Copying, move.Absent):
		return recordsCopying
	}
	return recordsFollowing
}

// step names an action of an attempt. Each can be repeated, whatever an attempt that has ended left of it.
type step string

const (
	stepBegin  step = "begin"  // check whether the group can be moved, and record the start
	stepHold   step = "hold"   // find the resources, and claim them in the Stores
	stepRefuse step = "refuse" // fail for good: a Store has objects that are not of the copy, or a part of the copy or all definitions were deleted
	stepDone   step = "done"
	stepGoOn   step = "goOn" // continue, because it is too late to cancel

	// Of a Move.
	stepAdopt    step = "adopt"    // freeze the main cluster, which must have no objects, and record that annex has its own
	stepRoute    step = "route"    // allow the routes to annex, and wait for them
	stepCopy     step = "copy"     // close the Stores and copy
	stepSwitch   step = "switch"   // follow the main cluster, allow the routes to annex, open all Stores
	stepOpenRest step = "openRest" // open those that an interrupted switch has left
	stepRecord   step = "record"   // record that annex serves the group
	stepSettle   step = "settle"   // freeze the main cluster's copy, and apply late writes
	stepObserve  step = "observe"  // check that clients reach annex
	stepForget   step = "forget"   // remove what freezes the main cluster
	stepUndo     step = "undo"     // give the routes back to the main cluster
	stepDiscard  step = "discard"  // delete the copy

	// Of a Rollback, and of Finalize.
	stepThaw    step = "thaw"    // allow writes in annex
	stepOpen    step = "open"    // make the main cluster's copy reachable
	stepSync    step = "sync"    // make it equal to annex's objects, with annex frozen at the end
	stepReturn  step = "return"  // close annex, and give the routes back
	stepClean   step = "clean"   // delete what the other side has
	stepClose   step = "close"   // make the main cluster's copy unreachable
	stepAbandon step = "abandon" // thaw, and make the copy unreachable and frozen again
)

// next returns the step that follows from the recorded state of a Migration. It is a pure function.
func next(s situation) step {
	switch {
	case s.canceled && (s.undone || !s.started):
		return stepDone
	case s.canceled && s.switched:
		return stepGoOn
	}
	switch s.operation {
	case hostingv1alpha1.MigrationRollback:
		return nextOfRollback(s)
	case hostingv1alpha1.MigrationFinalize:
		return nextOfFinalize(s)
	}
	return nextOfMove(s)
}

func nextOfMove(s situation) step {
	switching := s.phase == hostingv1alpha1.MigrationSwitching
	switch {
	case s.after == stepForget, s.after == stepObserve, s.after == stepDiscard:
		return stepDone
	case s.deleted:
		return stepForget
	case s.after == "" && !s.switched && !s.canceled:
		return stepBegin
	case s.records == recordsUnknown:
		return stepHold
	case s.switched && s.after == stepSettle:
		return stepObserve
	case s.switched:
		return stepSettle
	}
	isOpen := s.records == recordsOpening || s.records == recordsOpen || s.records == recordsAdopted && (switching || !s.canceled)
	switch {
	case isOpen && s.canceled: // annex may have acknowledged writes
		return stepGoOn
	case s.records == recordsOpening:
		return stepOpenRest
	case isOpen && (s.after == stepSwitch || s.after == stepRoute):
		return stepRecord
	case isOpen:
		return stepRoute
	case switching:
		return stepUndo
	case s.canceled:
		return stepDiscard
	case s.records == recordsDisputed, s.records == recordsDiscarded, s.records == recordsGone:
		return stepRefuse
	case s.records == recordsOccupied:
		return stepAdopt
	case s.records == recordsFollowing:
		return stepSwitch
	}
	return stepCopy
}

func nextOfRollback(s situation) step {
	switching := s.phase == hostingv1alpha1.MigrationSwitching
	switch {
	case s.after == stepClean, s.after == stepAbandon:
		return stepDone
	case s.canceled && switching: // the main cluster may have been raised and routed
		return stepGoOn
	case !s.started:
		return stepBegin
	case s.records == recordsUnknown:
		return stepHold
	case s.canceled:
		return stepAbandon
	case s.switched:
		return stepClean
	case switching:
		return stepReturn
	case s.records == recordsDiscarded:
		return stepRefuse
	case s.after == stepThaw:
		return stepOpen
	case s.after == stepOpen:
		return stepSync
	}
	return stepThaw
}

// nextOfFinalize has nothing to undo: the switch is the confirmation.
func nextOfFinalize(s situation) step {
	switch {
	case s.canceled, s.after == stepClose:
		return stepDone
	case !s.switched:
		return stepBegin
	case s.after == stepClean:
		return stepClose
	case s.after == stepOpen:
		return stepClean
	}
	return stepOpen
}
