// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package groupmove

import (
	"testing"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/storage/move"
	"github.com/annex-dev/annex/pkg/test/expect"
)

const (
	copying    = hostingv1alpha1.MigrationCopying
	followed   = hostingv1alpha1.MigrationFollowing
	switching  = hostingv1alpha1.MigrationSwitching
	observing  = hostingv1alpha1.MigrationObserving
	cleaning   = hostingv1alpha1.MigrationCleaning
	rollsBack  = hostingv1alpha1.MigrationRollback
	finalizing = hostingv1alpha1.MigrationFinalize
)

// TestNext has a row for each decision. The model decides all combinations.
func TestNext(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		situation
		want step
	}{
		"nothing was done":                            {situation{}, stepBegin},
		"it was deleted before it began":              {situation{canceled: true}, stepDone},
		"a Rollback undoes it":                        {situation{canceled: true, started: true, switched: true, undone: true}, stepDone},
		"it was deleted after the switch":             {situation{canceled: true, started: true, switched: true}, stepGoOn},
		"another attempt labelled only a part":        {situation{started: true}, stepBegin},
		"earlier attempts are not fenced":             {situation{started: true, after: stepBegin}, stepHold},
		"annex has nothing of the group":              {situation{started: true, after: stepHold, records: recordsVacant}, stepCopy},
		"a definition was added":                      {situation{started: true, after: stepHold, records: recordsCopying}, stepCopy},
		"annex was restarted with a whole copy":       {situation{started: true, phase: followed, after: stepHold, records: recordsFollowing}, stepSwitch},
		"annex has objects from a backup":             {situation{started: true, after: stepHold, records: recordsOccupied}, stepAdopt},
		"it has objects beside the copy":              {situation{started: true, after: stepHold, records: recordsDisputed}, stepRefuse},
		"a part of the copy was deleted":              {situation{started: true, after: stepHold, records: recordsDiscarded}, stepRefuse},
		"its definitions were deleted":                {situation{started: true, after: stepHold, records: recordsGone}, stepRefuse},
		"the copy is complete":                        {situation{started: true, phase: copying, after: stepCopy, records: recordsFollowing}, stepSwitch},
		"the switch has failed":                       {situation{started: true, phase: switching, after: stepSwitch}, stepHold},
		"none was opened":                             {situation{started: true, phase: switching, after: stepHold, records: recordsFollowing}, stepUndo},
		"none was opened, and it has other objects":   {situation{started: true, phase: switching, after: stepHold, records: recordsDisputed}, stepUndo},
		"none was opened, and it was deleted":         {situation{started: true, phase: switching, canceled: true, after: stepHold, records: recordsFollowing}, stepUndo},
		"its definitions were deleted in the switch":  {situation{started: true, phase: switching, canceled: true, after: stepHold, records: recordsGone}, stepUndo},
		"the routes were given back":                  {situation{started: true, phase: followed, after: stepUndo, records: recordsFollowing}, stepSwitch},
		"they were given back, and it was deleted":    {situation{started: true, phase: followed, canceled: true, after: stepUndo, records: recordsFollowing}, stepDiscard},
		"one was opened":                              {situation{started: true, phase: switching, after: stepHold, records: recordsOpening}, stepOpenRest},
		"one was opened, and it was deleted":          {situation{started: true, phase: switching, canceled: true, after: stepHold, records: recordsOpening}, stepGoOn},
		"all were opened, and annex was restarted":    {situation{started: true, phase: switching, after: stepHold, records: recordsOpen}, stepRoute},
		"all were opened, and it was deleted":         {situation{started: true, phase: switching, canceled: true, after: stepHold, records: recordsOpen}, stepGoOn},
		"all were opened by this attempt":             {situation{started: true, phase: switching, after: stepSwitch, records: recordsOpen}, stepRecord},
		"objects were adopted":                        {situation{started: true, after: stepAdopt, records: recordsAdopted}, stepRoute},
		"adopted objects were routed":                 {situation{started: true, phase: switching, after: stepRoute, records: recordsAdopted}, stepRecord},
		"they may have been routed":                   {situation{started: true, phase: switching, canceled: true, after: stepHold, records: recordsAdopted}, stepGoOn},
		"they were not routed":                        {situation{started: true, phase: copying, canceled: true, after: stepHold, records: recordsAdopted}, stepDiscard},
		"annex was restarted after the switch":        {situation{started: true, switched: true, phase: observing}, stepHold},
		"late writes may be missing":                  {situation{started: true, switched: true, phase: observing, after: stepHold, records: recordsOpen}, stepSettle},
		"the switch was recorded":                     {situation{started: true, switched: true, phase: observing, after: stepRecord, records: recordsOpen}, stepSettle},
		"the main cluster is frozen":                  {situation{started: true, switched: true, phase: observing, after: stepSettle, records: recordsOpen}, stepObserve},
		"clients reach annex":                         {situation{started: true, switched: true, phase: observing, after: stepObserve, records: recordsOpen}, stepDone},
		"there is nothing left to freeze":             {situation{started: true, switched: true, phase: observing, after: stepSettle, deleted: true}, stepForget},
		"nothing is frozen":                           {situation{started: true, switched: true, phase: observing, after: stepForget, deleted: true}, stepDone},
		"it was deleted before its first attempt":     {situation{started: true, canceled: true}, stepHold},
		"it was deleted while it was copied":          {situation{started: true, canceled: true, phase: copying, after: stepHold, records: recordsCopying}, stepDiscard},
		"it was deleted before it was copied":         {situation{started: true, canceled: true, after: stepHold, records: recordsVacant}, stepDiscard},
		"it has other objects":                        {situation{started: true, canceled: true, after: stepHold, records: recordsOccupied}, stepDiscard},
		"it was deleted twice":                        {situation{started: true, canceled: true, after: stepHold, records: recordsDiscarded}, stepDiscard},
		"the copy was deleted":                        {situation{started: true, canceled: true, after: stepDiscard, records: recordsCopying}, stepDone},
		"Rollback: nothing was done":                  {situation{operation: rollsBack}, stepBegin},
		"Rollback: earlier attempts are not fenced":   {situation{operation: rollsBack, started: true}, stepHold},
		"Rollback: annex may be frozen":               {situation{operation: rollsBack, started: true, phase: followed, after: stepHold, records: recordsHeld}, stepThaw},
		"Rollback: annex takes writes":                {situation{operation: rollsBack, started: true, after: stepThaw, records: recordsHeld}, stepOpen},
		"Rollback: the copy is reachable":             {situation{operation: rollsBack, started: true, after: stepOpen, records: recordsHeld}, stepSync},
		"Rollback: the copy is equal":                 {situation{operation: rollsBack, started: true, phase: switching, after: stepSync, records: recordsHeld}, stepReturn},
		"Rollback: restarted while annex is frozen":   {situation{operation: rollsBack, started: true, phase: switching, after: stepHold, records: recordsHeld}, stepReturn},
		"Rollback: the main cluster serves":           {situation{operation: rollsBack, started: true, switched: true, phase: cleaning, after: stepReturn, records: recordsHeld}, stepClean},
		"Rollback: restarted while it cleans":         {situation{operation: rollsBack, started: true, switched: true, phase: cleaning}, stepHold},
		"Rollback: annex has nothing":                 {situation{operation: rollsBack, started: true, switched: true, phase: cleaning, after: stepClean, records: recordsHeld}, stepDone},
		"Rollback: deleted before the switch":         {situation{operation: rollsBack, started: true, canceled: true, phase: followed}, stepHold},
		"Rollback: annex goes on to serve":            {situation{operation: rollsBack, started: true, canceled: true, phase: followed, after: stepHold, records: recordsHeld}, stepAbandon},
		"Rollback: its end was begun before":          {situation{operation: rollsBack, started: true, canceled: true, after: stepHold, records: recordsDiscarded}, stepAbandon},
		"Rollback: restarted after its end was begun": {situation{operation: rollsBack, started: true, after: stepHold, records: recordsDiscarded}, stepRefuse},
		"Rollback: it was abandoned":                  {situation{operation: rollsBack, started: true, canceled: true, after: stepAbandon, records: recordsHeld}, stepDone},
		"Rollback: deleted in the switch":             {situation{operation: rollsBack, started: true, canceled: true, phase: switching}, stepGoOn},
		"Finalize: not confirmed":                     {situation{operation: finalizing}, stepBegin},
		"Finalize: confirmed":                         {situation{operation: finalizing, started: true, switched: true, phase: cleaning, after: stepBegin}, stepOpen},
		"Finalize: annex was restarted":               {situation{operation: finalizing, started: true, switched: true, phase: cleaning}, stepOpen},
		"Finalize: the copy is reachable":             {situation{operation: finalizing, started: true, switched: true, phase: cleaning, after: stepOpen}, stepClean},
		"Finalize: the copy is deleted":               {situation{operation: finalizing, started: true, switched: true, phase: cleaning, after: stepClean}, stepClose},
		"Finalize: the copy is closed":                {situation{operation: finalizing, started: true, switched: true, phase: cleaning, after: stepClose}, stepDone},
		"Finalize: deleted before it is confirmed":    {situation{operation: finalizing, canceled: true}, stepDone},
		"Finalize: deleted after it was confirmed":    {situation{operation: finalizing, started: true, switched: true, canceled: true}, stepGoOn},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			expect.Equal(t, test.want, next(test.situation), "next step")
		})
	}
}

// TestSummary: what is opened decides, then what was deleted, then what is missing.
func TestSummary(t *testing.T) {
	t.Parallel()
	for want, all := range map[records][][]move.State{
		recordsGone:      {nil},
		recordsVacant:    {{move.Absent, move.Absent}},
		recordsOccupied:  {{occupied}, {move.Absent, occupied}},
		recordsDisputed:  {{occupied, move.Copying}, {move.Following, occupied}},
		recordsDiscarded: {{move.Cleaned, move.Absent}, {move.Cleaned, move.Following}, {move.Cleaned, occupied}},
		recordsCopying:   {{move.Copying, move.Following}, {move.Absent, move.Following}},
		recordsFollowing: {{move.Following, move.Following}},
		recordsAdopted:   {{move.Adopted, occupied}, {move.Adopted, move.Absent}},
		recordsOpening:   {{move.Following, move.Switched}},
		recordsOpen:      {{move.Switched, move.Switched}, {move.Switched, move.Absent}, {move.Switched, occupied}},
	} {
		for _, states := range all {
			expect.Equal(t, want, summary(states), states)
		}
	}
}
