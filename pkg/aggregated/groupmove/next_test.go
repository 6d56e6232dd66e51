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
		"annex has nothing of the group":              {situation{started: true, after: stepHold, stores: storesVacant}, stepCopy},
		"a definition was added":                      {situation{started: true, after: stepHold, stores: storesCopying}, stepCopy},
		"annex was restarted with a whole copy":       {situation{started: true, phase: followed, after: stepHold, stores: storesFollowing}, stepSwitch},
		"annex has objects from a backup":             {situation{started: true, after: stepHold, stores: storesOccupied}, stepAdopt},
		"it has objects beside the copy":              {situation{started: true, after: stepHold, stores: storesDisputed}, stepRefuse},
		"a part of the copy was deleted":              {situation{started: true, after: stepHold, stores: storesDiscarded}, stepRefuse},
		"the copy is complete":                        {situation{started: true, phase: copying, after: stepCopy, stores: storesFollowing}, stepSwitch},
		"the switch has failed":                       {situation{started: true, phase: switching, after: stepSwitch}, stepHold},
		"none was opened":                             {situation{started: true, phase: switching, after: stepHold, stores: storesFollowing}, stepUndo},
		"none was opened, and it has other objects":   {situation{started: true, phase: switching, after: stepHold, stores: storesDisputed}, stepUndo},
		"none was opened, and it was deleted":         {situation{started: true, phase: switching, canceled: true, after: stepHold, stores: storesFollowing}, stepUndo},
		"its definitions were deleted in the switch":  {situation{started: true, phase: switching, canceled: true, after: stepHold, stores: storesGone}, stepUndo},
		"the routes were given back":                  {situation{started: true, phase: followed, after: stepUndo, stores: storesFollowing}, stepSwitch},
		"they were given back, and it was deleted":    {situation{started: true, phase: followed, canceled: true, after: stepUndo, stores: storesFollowing}, stepDiscard},
		"one was opened":                              {situation{started: true, phase: switching, after: stepHold, stores: storesOpening}, stepOpenRest},
		"one was opened, and it was deleted":          {situation{started: true, phase: switching, canceled: true, after: stepHold, stores: storesOpening}, stepGoOn},
		"all were opened, and annex was restarted":    {situation{started: true, phase: switching, after: stepHold, stores: storesOpen}, stepRoute},
		"all were opened, and it was deleted":         {situation{started: true, phase: switching, canceled: true, after: stepHold, stores: storesOpen}, stepGoOn},
		"all were opened by this attempt":             {situation{started: true, phase: switching, after: stepSwitch, stores: storesOpen}, stepRecord},
		"objects were adopted":                        {situation{started: true, after: stepAdopt, stores: storesAdopted}, stepRoute},
		"adopted objects were routed":                 {situation{started: true, phase: switching, after: stepRoute, stores: storesAdopted}, stepRecord},
		"they may have been routed":                   {situation{started: true, phase: switching, canceled: true, after: stepHold, stores: storesAdopted}, stepGoOn},
		"they were not routed":                        {situation{started: true, phase: copying, canceled: true, after: stepHold, stores: storesAdopted}, stepDiscard},
		"annex was restarted after the switch":        {situation{started: true, switched: true, phase: observing}, stepHold},
		"late writes may be missing":                  {situation{started: true, switched: true, phase: observing, after: stepHold, stores: storesOpen}, stepSettle},
		"the switch was recorded":                     {situation{started: true, switched: true, phase: observing, after: stepRecord, stores: storesOpen}, stepSettle},
		"the main cluster is frozen":                  {situation{started: true, switched: true, phase: observing, after: stepSettle, stores: storesOpen}, stepObserve},
		"clients reach annex":                         {situation{started: true, switched: true, phase: observing, after: stepObserve, stores: storesOpen}, stepDone},
		"there is nothing left to freeze":             {situation{started: true, switched: true, phase: observing, after: stepSettle, deleted: true}, stepForget},
		"nothing is frozen":                           {situation{started: true, switched: true, phase: observing, after: stepForget, deleted: true}, stepDone},
		"it was deleted before it was taken over":     {situation{started: true, canceled: true}, stepHold},
		"it was deleted while it was copied":          {situation{started: true, canceled: true, phase: copying, after: stepHold, stores: storesCopying}, stepDiscard},
		"it was deleted before it was copied":         {situation{started: true, canceled: true, after: stepHold, stores: storesVacant}, stepDiscard},
		"it has other objects":                        {situation{started: true, canceled: true, after: stepHold, stores: storesOccupied}, stepDiscard},
		"it was deleted twice":                        {situation{started: true, canceled: true, after: stepHold, stores: storesDiscarded}, stepDiscard},
		"the copy was deleted":                        {situation{started: true, canceled: true, after: stepDiscard, stores: storesCopying}, stepDone},
		"Rollback: nothing was done":                  {situation{operation: rollsBack}, stepBegin},
		"Rollback: earlier attempts are not fenced":   {situation{operation: rollsBack, started: true}, stepHold},
		"Rollback: annex may be frozen":               {situation{operation: rollsBack, started: true, phase: followed, after: stepHold, stores: storesHeld}, stepThaw},
		"Rollback: annex takes writes":                {situation{operation: rollsBack, started: true, after: stepThaw, stores: storesHeld}, stepOpen},
		"Rollback: the copy is reachable":             {situation{operation: rollsBack, started: true, after: stepOpen, stores: storesHeld}, stepSync},
		"Rollback: the copy is equal":                 {situation{operation: rollsBack, started: true, phase: switching, after: stepSync, stores: storesHeld}, stepReturn},
		"Rollback: restarted while annex is frozen":   {situation{operation: rollsBack, started: true, phase: switching, after: stepHold, stores: storesHeld}, stepReturn},
		"Rollback: the main cluster serves":           {situation{operation: rollsBack, started: true, switched: true, phase: cleaning, after: stepReturn, stores: storesHeld}, stepClean},
		"Rollback: restarted while it cleans":         {situation{operation: rollsBack, started: true, switched: true, phase: cleaning}, stepHold},
		"Rollback: annex has nothing":                 {situation{operation: rollsBack, started: true, switched: true, phase: cleaning, after: stepClean, stores: storesHeld}, stepDone},
		"Rollback: deleted before the switch":         {situation{operation: rollsBack, started: true, canceled: true, phase: followed}, stepHold},
		"Rollback: annex goes on to serve":            {situation{operation: rollsBack, started: true, canceled: true, phase: followed, after: stepHold, stores: storesHeld}, stepAbandon},
		"Rollback: its end was begun before":          {situation{operation: rollsBack, started: true, canceled: true, after: stepHold, stores: storesDiscarded}, stepAbandon},
		"Rollback: restarted after its end was begun": {situation{operation: rollsBack, started: true, after: stepHold, stores: storesDiscarded}, stepRefuse},
		"Rollback: it was abandoned":                  {situation{operation: rollsBack, started: true, canceled: true, after: stepAbandon, stores: storesHeld}, stepDone},
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
	for want, all := range map[stores][][]move.State{
		storesGone:      {nil},
		storesVacant:    {{move.Absent, move.Absent}},
		storesOccupied:  {{occupied}, {move.Absent, occupied}},
		storesDisputed:  {{occupied, move.Copying}, {move.Following, occupied}},
		storesDiscarded: {{move.Cleaned, move.Absent}, {move.Cleaned, move.Following}, {move.Cleaned, occupied}},
		storesCopying:   {{move.Copying, move.Following}, {move.Absent, move.Following}},
		storesFollowing: {{move.Following, move.Following}},
		storesAdopted:   {{move.Adopted, occupied}, {move.Adopted, move.Absent}},
		storesOpening:   {{move.Following, move.Switched}},
		storesOpen:      {{move.Switched, move.Switched}, {move.Switched, move.Absent}, {move.Switched, occupied}},
	} {
		for _, states := range all {
			expect.Equal(t, want, summary(states), states)
		}
	}
}
