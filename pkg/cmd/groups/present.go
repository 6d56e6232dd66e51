// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package groups

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/cmd/migrations"
	"github.com/annex-dev/annex/pkg/cmd/progress"
	"github.com/annex-dev/annex/pkg/registry/table"
)

// reasonWaiting is the reason of a verified Migration that waits for the time or the confirmation
// of its switch.
const reasonWaiting = "Waiting"

// doing describes the phases of each operation.
var doing = map[hostingv1alpha1.MigrationOperation]map[hostingv1alpha1.MigrationPhase]string{
	hostingv1alpha1.MigrationMove: {
		hostingv1alpha1.MigrationPending:   "annex takes over the definitions",
		hostingv1alpha1.MigrationCopying:   "the objects are copied to annex",
		hostingv1alpha1.MigrationFollowing: "later writes are copied as they happen",
		hostingv1alpha1.MigrationVerifying: "every object is compared",
		hostingv1alpha1.MigrationSwitching: "requests are routed to annex",
		hostingv1alpha1.MigrationObserving: "annex serves the group; checks that clients reach it",
	},
	hostingv1alpha1.MigrationRollback: {
		hostingv1alpha1.MigrationPending:   "the main cluster's copy is opened",
		hostingv1alpha1.MigrationCopying:   "the objects are copied to the main cluster",
		hostingv1alpha1.MigrationVerifying: "every object is compared",
		hostingv1alpha1.MigrationFollowing: "the main cluster's revision is raised above the resource versions that clients have",
		hostingv1alpha1.MigrationSwitching: "requests are routed to the main cluster",
		hostingv1alpha1.MigrationCleaning:  "the main cluster serves the group; annex deletes its objects",
	},
	hostingv1alpha1.MigrationFinalize: {
		hostingv1alpha1.MigrationPending:  "the main cluster's copy is opened",
		hostingv1alpha1.MigrationCleaning: "the objects in the main cluster are deleted",
	},
}

// present shows a Migration until it ends.
func (s *session) present(ctx context.Context, migration *hostingv1alpha1.Migration) error {
	p := newPresenter(s)
	p.began = cmp.Or(migration.CreationTimestamp.Time, s.now())
	defer p.bar.End()
	return migrations.Follow(ctx, s.annexClients, migration, p.show, p.problem)
}

// presenter shows a Migration.
type presenter struct {
	*session
	bar   *progress.Bar
	began time.Time
	last  string
	// copied are the resources whose copies were reported.
	copied sets.Set[string]
}

func newPresenter(s *session) *presenter {
	return &presenter{session: s, bar: progress.New(s.out, s.group), began: s.now(), copied: sets.New[string]()}
}

// show prints what is new, and returns the result once there is one.
func (p *presenter) show(migration *hostingv1alpha1.Migration) (done bool, err error) {
	status := migration.Status
	complete := meta.FindStatusCondition(status.Conditions, hostingv1alpha1.MigrationComplete)
	if complete == nil {
		complete = &metav1.Condition{Reason: string(status.Phase)}
	}
	switch {
	case status.Phase == "":
		return false, nil
	case status.Phase == hostingv1alpha1.MigrationCompleted:
		p.showCopies(status)
		p.line(string(status.Phase))
		return true, nil
	case status.Phase.Finished():
		return false, &migrations.EndedError{Why: complete.Reason + ": " + complete.Message}
	}
	p.showCopies(status)
	text := doing[migration.Spec.Operation][status.Phase]
	if complete.Reason != string(status.Phase) || text == "" {
		text = complete.Message
	}
	if complete.Reason == reasonWaiting && migration.Spec.Switch == hostingv1alpha1.MigrationSwitchManual && !migration.Spec.Confirmed {
		text += ": " + p.command("move", "--confirm")
	}
	p.line(fmt.Sprintf("%s: %s", status.Phase, text))
	if copies(status.Phase) {
		var objects, copied, bytes int64
		for _, resource := range status.Resources {
			objects, copied, bytes = objects+resource.Objects, copied+resource.CopiedObjects, bytes+resource.CopiedBytes
		}
		p.bar.Show(copied, objects, bytes)
	}
	return false, nil
}

func copies(phase hostingv1alpha1.MigrationPhase) bool {
	return phase == hostingv1alpha1.MigrationCopying || phase == hostingv1alpha1.MigrationCleaning
}

// showCopies prints a line for each resource whose objects are all copied, once the copy of all
// began.
func (p *presenter) showCopies(status hostingv1alpha1.MigrationStatus) {
	for _, resource := range status.Resources {
		done := resource.CopiedObjects >= resource.Objects && (resource.Objects > 0 || !copies(status.Phase))
		if status.Phase == hostingv1alpha1.MigrationPending || !done || p.copied.Has(resource.Name) {
			continue
		}
		p.copied.Insert(resource.Name)
		size := ""
		if resource.CopiedBytes > 0 {
			size = ", " + table.Bytes(resource.CopiedBytes)
		}
		p.printLine(fmt.Sprintf("%s: %d objects%s", resource.Name, resource.CopiedObjects, size))
	}
}

// problem prints the error of a request for the Migration.
func (p *presenter) problem(err error) {
	p.line(fmt.Sprintf("annex does not answer, waiting: %v", err))
}

// line prints a line, unless it was the last one.
func (p *presenter) line(text string) {
	if text != p.last {
		p.last = text
		p.printLine(text)
	}
}

// printLine prints a line after the time since the Migration was created.
func (p *presenter) printLine(text string) {
	p.bar.End()
	elapsed := max(0, p.now().Sub(p.began)).Truncate(time.Second)
	p.print("[%d:%02d] %s", int(elapsed.Minutes()), int(elapsed.Seconds())%60, text)
}
