// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package output

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	annexclient "github.com/annex-dev/annex/pkg/generated/clientset/versioned"
	"github.com/annex-dev/annex/pkg/table"
)

// reasonWaiting is the reason of a verified Migration that waits for the time or the confirmation
// of its switch.
const reasonWaiting = "Waiting"

// MigrationView shows a Migration.
type MigrationView struct {
	Annex annexclient.Interface
	Out   io.Writer
	// Confirm is the command that allows a Manual switch.
	Confirm string

	began time.Time
	last  string
	bar   *Bar
	// phase is the phase that the bar shows.
	phase hostingv1alpha1.MigrationPhase
	// copied are the resources whose copies were reported.
	copied sets.Set[string]
}

// Show prints each change of a Migration after the time since it was created, and draws the progress of its phase, until it
// ends. It returns an EndedError if the Migration did not complete.
func (v *MigrationView) Show(ctx context.Context, migration *hostingv1alpha1.Migration) error {
	v.begin(migration)
	defer func() { v.bar.End() }()
	return follow(ctx, v.Annex, migration, v.show, v.problem)
}

func (v *MigrationView) begin(migration *hostingv1alpha1.Migration) {
	v.began, v.bar, v.copied = migration.CreationTimestamp.Time, NewBar(v.Out, ""), sets.New[string]()
	if v.began.IsZero() {
		v.began = time.Now()
	}
}

// show prints what is new, and returns the result once there is one.
func (v *MigrationView) show(migration *hostingv1alpha1.Migration) (done bool, err error) {
	status := migration.Status
	complete := meta.FindStatusCondition(status.Conditions, hostingv1alpha1.MigrationComplete)
	if complete == nil {
		complete = &metav1.Condition{Reason: string(status.Phase)}
	}
	switch {
	case status.Phase == "" || complete.Message == "" && status.Phase == hostingv1alpha1.MigrationPending:
		return false, nil // it has not begun
	case status.Phase == hostingv1alpha1.MigrationCompleted:
		v.showCopies(status)
		v.line(string(status.Phase))
		return true, nil
	case status.Phase.Finished():
		return false, &EndedError{Why: complete.Reason + ": " + complete.Message}
	}
	if status.Phase != v.phase {
		v.bar.End()
		v.phase, v.bar = status.Phase, NewBar(v.Out, string(status.Phase))
	}
	v.showCopies(status)
	text := complete.Message
	if complete.Reason == reasonWaiting && migration.Spec.Switch == hostingv1alpha1.MigrationSwitchManual && !migration.Spec.Confirmed {
		text += ": " + v.Confirm
	}
	v.line(strings.TrimSuffix(fmt.Sprintf("%s: %s", status.Phase, text), ": "))
	if of := status.Progress; of != nil && of.Total > 0 {
		v.bar.ShowCount(of.Done, of.Total, unit(status))
	}
	return false, nil
}

func unit(of hostingv1alpha1.MigrationStatus) string {
	switch of.Phase {
	case hostingv1alpha1.MigrationFollowing:
		return "revisions"
	case hostingv1alpha1.MigrationCopying:
		if of.CopiedBytes > 0 {
			return "objects, " + table.Bytes(of.CopiedBytes)
		}
	}
	return "objects"
}

// showCopies prints a line for each resource whose objects are all copied or deleted, once that began.
func (v *MigrationView) showCopies(status hostingv1alpha1.MigrationStatus) {
	counts := status.Phase == hostingv1alpha1.MigrationCopying || status.Phase == hostingv1alpha1.MigrationCleaning
	for _, resource := range status.Resources {
		done := resource.CopiedObjects >= resource.Objects && (resource.Objects > 0 || !counts)
		if status.Phase == hostingv1alpha1.MigrationPending || !done || v.copied.Has(resource.Name) {
			continue
		}
		v.copied.Insert(resource.Name)
		size := ""
		if resource.CopiedBytes > 0 {
			size = ", " + table.Bytes(resource.CopiedBytes)
		}
		v.printLine(fmt.Sprintf("%s: %d objects%s", resource.Name, resource.CopiedObjects, size))
	}
}

// problem prints the error of a request for the Migration, once until annex answers.
func (v *MigrationView) problem(err error) {
	const prefix = "annex does not answer, waiting: "
	if !strings.HasPrefix(v.last, prefix) {
		v.line(prefix + err.Error())
	}
}

func (v *MigrationView) line(text string) {
	if text != v.last {
		v.last = text
		v.printLine(text)
	}
}

// printLine prints a line after the time since the Migration was created.
func (v *MigrationView) printLine(text string) {
	v.bar.Clear()
	elapsed := max(0, time.Since(v.began)).Truncate(time.Second)
	_, _ = fmt.Fprintf(v.Out, "[%d:%02d] %s\n", int(elapsed.Minutes()), int(elapsed.Seconds())%60, text)
}
