// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package output

import (
	"bytes"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/test/expect"
)

const (
	pending, copying, following      = hostingv1alpha1.MigrationPending, hostingv1alpha1.MigrationCopying, hostingv1alpha1.MigrationFollowing
	verifying, switching, observing  = hostingv1alpha1.MigrationVerifying, hostingv1alpha1.MigrationSwitching, hostingv1alpha1.MigrationObserving
	cleaning, completed, noCondition = hostingv1alpha1.MigrationCleaning, hostingv1alpha1.MigrationCompleted, "none"
)

// step is a state of a Migration, a second after the one before.
type step struct {
	phase           hostingv1alpha1.MigrationPhase
	reason, message string
	// copied are the copied or deleted widgets of 1200, and done what the phase has done of total.
	copied, done, total int64
	// problem is the error of a request instead of a state.
	problem string
}

// TestView shows all phases of each operation, with the time since the Migration was created, and with a bar where the phase
// counts something.
func TestView(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		operation hostingv1alpha1.MigrationOperation
		manual    bool
		steps     []step
		want      string
		bars      []string
	}{
		"move": {hostingv1alpha1.MigrationMove, false, []step{
			{}, {phase: pending, reason: noCondition}, {phase: pending, message: "Creates the definitions"},
			{phase: copying, message: "Copies", copied: 600, done: 600, total: 1200}, {phase: copying, message: "Copies", copied: 1200, done: 1200, total: 1200},
			{phase: following, message: "Follows", copied: 1200}, {phase: verifying, message: "Compares", copied: 1200, done: 300, total: 1200},
			{phase: switching, message: "Requests wait", copied: 1200}, {phase: observing, message: "Checks", copied: 1200}, {phase: completed, copied: 1200},
		}, `[1:02] Pending: Creates the definitions
[1:03] Copying: Copies
[1:04] widgets.example.com: 1200 objects, 1.2Mi
[1:05] Following: Follows
[1:06] Verifying: Compares
[1:07] Switching: Requests wait
[1:08] Observing: Checks
[1:09] Completed
`, []string{"Copying 600/1200 objects, 600Ki", "Copying 1200/1200 objects, 1.2Mi", "Verifying 300/1200 objects"}},
		"rollback": {hostingv1alpha1.MigrationRollback, false, []step{
			{phase: verifying, message: "Compares", copied: 1200, done: 1200, total: 1200},
			{phase: following, message: "Raises the revision", copied: 1200, done: 9000, total: 9_000_000}, {phase: following, message: "Raises the revision", copied: 1200, done: 18_000, total: 9_000_000},
			{phase: cleaning, message: "Deletes", copied: 1200}, {phase: completed, copied: 1200},
		}, `[1:00] widgets.example.com: 1200 objects, 1.2Mi
[1:00] Verifying: Compares
[1:01] Following: Raises the revision
[1:03] Cleaning: Deletes
[1:04] Completed
`, []string{"Verifying 1200/1200 objects", "Following 9000/9000000 revisions", "Following 18000/9000000 revisions"}},
		"finalize": {hostingv1alpha1.MigrationFinalize, false, []step{
			{phase: pending, reason: "Waiting", message: "Set spec.confirmed to true"}, {phase: cleaning, message: "Deletes", copied: 400, done: 400, total: 1200}, {phase: completed, copied: 1200},
		}, `[1:00] Pending: Set spec.confirmed to true
[1:01] Cleaning: Deletes
[1:02] widgets.example.com: 1200 objects, 1.2Mi
[1:02] Completed
`, []string{"Cleaning 400/1200 objects"}},
		"problems": {hostingv1alpha1.MigrationMove, true, []step{
			{phase: copying, message: "Copies", copied: 1, done: 1, total: 1200}, {problem: "no endpoints"}, {problem: "connection refused"},
			{phase: copying, reason: hostingv1alpha1.MigrationRetrying, message: "the Store is unavailable", copied: 1, done: 1, total: 1200},
			{phase: copying, reason: hostingv1alpha1.MigrationRetrying, message: "the Store is unavailable", copied: 1, done: 1, total: 1200},
			{phase: following, reason: "Waiting", message: "verified", copied: 1200}, {phase: following, reason: "Waiting", message: "verified", copied: 1200},
		}, `[1:00] Copying: Copies
[1:01] annex does not answer, waiting: no endpoints
[1:03] Copying: the Store is unavailable
[1:05] widgets.example.com: 1200 objects, 1.2Mi
[1:05] Following: verified: annex move example.com --confirm
`, []string{"Copying 1/1200 objects, 1Ki", "Copying 1/1200 objects, 1Ki", "Copying 1/1200 objects, 1Ki"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var out bytes.Buffer
				var bars []string
				m := &hostingv1alpha1.Migration{Spec: hostingv1alpha1.MigrationSpec{Operation: test.operation}}
				m.CreationTimestamp = metav1.NewTime(time.Now())
				if test.manual {
					m.Spec.Switch = hostingv1alpha1.MigrationSwitchManual
				}
				v := &MigrationView{Out: &out, Confirm: "annex move example.com --confirm"}
				v.begin(m)
				time.Sleep(time.Minute)
				for _, step := range test.steps {
					if step.problem != "" {
						v.problem(errors.New(step.problem))
					} else {
						m.Status = step.status()
						done, err := v.show(m)
						expect.NoError(t, err)
						expect.Equal(t, step.phase == completed, done)
						if of := m.Status.Progress; of != nil && !done {
							bars = append(bars, fmt.Sprintf("%s %d/%d %s", v.phase, of.Done, of.Total, unit(m.Status)))
						}
					}
					time.Sleep(time.Second)
				}
				expect.Equal(t, test.want, out.String())
				expect.Equal(t, test.bars, bars)
			})
		})
	}
}

func (s step) status() hostingv1alpha1.MigrationStatus {
	status := hostingv1alpha1.MigrationStatus{
		Phase: s.phase, CopiedBytes: 1024 * s.copied,
		Resources: []hostingv1alpha1.MigrationResourceStatus{{Name: "widgets.example.com", Objects: 1200, CopiedObjects: s.copied, CopiedBytes: 1024 * s.copied}},
	}
	if s.total > 0 {
		status.Progress = &hostingv1alpha1.MigrationProgress{Done: s.done, Total: s.total}
	}
	if s.reason == "" {
		s.reason = string(s.phase)
	}
	if s.reason != noCondition {
		status.Conditions = []metav1.Condition{{Type: hostingv1alpha1.MigrationComplete, Reason: s.reason, Message: s.message}}
	}
	return status
}
