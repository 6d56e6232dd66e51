// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package groupmove

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"

	"github.com/annex-dev/annex/pkg/aggregated/maincopy"
	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/storage/move"
)

const (
	// revisionMargin is the number of revisions by which the main cluster's is raised above annex's before the switch,
	// so that little is left to do while the group is frozen.
	revisionMargin = 100
	// named bounds the objects that an error names.
	named = 10
)

type rollback struct {
	*Run
	copies    []maincopy.Resource
	pairs     *maincopy.Pairs
	admission admission
	// differing has the differences of the last comparison, or nil.
	differing atomic.Pointer[error]
	// froze is the time at which this attempt has frozen annex.
	froze time.Time
}

func (r *rollback) completed() string {
	return fmt.Sprintf("The main cluster serves group %s", r.group())
}

func (r *rollback) perform(ctx, preparing context.Context, s step) error {
	r.Problem = r.syncProblem
	switch s {
	case stepBegin:
		return r.begin(preparing)
	case stepRefuse:
		return r.discarded()
	case stepThaw:
		return r.thaw(ctx)
	case stepOpen:
		return r.open(preparing)
	case stepSync:
		return r.sync(ctx, preparing)
	case stepReturn:
		return r.returnRoutes(ctx)
	case stepClean:
		return r.clean(ctx)
	}
	return r.abandon(ctx)
}

// fence fences all earlier attempts in the Stores, and reads the pairs that they have recorded.
func (r *rollback) fence(ctx context.Context) error {
	var err error
	if r.copies, err = r.config.MainCopy.Resources(ctx, r.group()); err != nil {
		return err
	}
	r.pairs, r.records = maincopy.NewPairs(r.group(), r.copies...), recordsHeld
	for _, of := range r.resources {
		of.exporter, err = r.config.NewExporter(of.hosted.Spec.StoreName, move.Config{
			Resource: of.Served.GroupResource(), UID: r.Migration.UID, HostedResource: of.hosted.UID,
		})
		if err != nil {
			return err
		}
		if err := of.exporter.Fence(ctx); errors.Is(err, move.ErrEnded) {
			r.records = recordsDiscarded
			continue
		} else if err != nil {
			return err
		}
		if err := r.pairs.Load(ctx, of.Resource, of.exporter); err != nil {
			return err
		}
	}
	return nil
}

// begin checks that annex serves the group.
func (r *rollback) begin(ctx context.Context) error {
	hosted, err := r.isHosted(ctx)
	if err != nil {
		return err
	}
	if !hosted {
		return refuse(reasonNotHosted, "annex does not serve group %s", r.group())
	}
	if err := r.checkRevision(ctx); err != nil {
		return err
	}
	r.Event(corev1.EventTypeNormal, eventStarted, "Moving group %s back to the main cluster", r.group())
	return r.start(ctx, "Makes the main cluster's copy of the group reachable")
}

// checkRevision refuses a distance of revisions that RaiseRevision would refuse for each object.
func (r *rollback) checkRevision(ctx context.Context) (err error) {
	if r.resources, _, err = r.present(ctx); err != nil {
		return err
	}
	above, err := r.annexRevision(ctx)
	if err != nil {
		return err
	}
	writes, err := r.config.MainCopy.RevisionsBelow(ctx, above)
	if err == nil && writes > maincopy.MaxRaise {
		err = refuse(reasonObstacles, "The resource versions of group %s are %d above those of the main cluster. A Rollback makes at most %d writes to raise those. "+
			"Move the group back by a backup, with clients stopped", r.group(), writes, maincopy.MaxRaise)
	}
	return err
}

func (r *rollback) open(ctx context.Context) error {
	if err := r.exempt(ctx); err != nil {
		return err
	}
	var err error
	if r.copies, err = r.config.MainCopy.Open(ctx, r.group()); err != nil {
		return r.explain(wrap(err, "open the main cluster's copy of group %s", r.group()))
	}
	r.probeAdmission(ctx)
	return nil
}

// sync makes the main cluster's copy equal to annex's objects, which are frozen at the end.
func (r *rollback) sync(ctx, preparing context.Context) error {
	caughtUp, err := r.startSyncers(ctx)
	if err != nil {
		return err
	}
	defer r.workers.end()
	return r.workers.guard(preparing, func(guarded context.Context) error { return r.untilFrozen(ctx, guarded, caughtUp) })
}

// untilFrozen makes the main cluster's copy equal to annex's objects, until nothing is written any more.
func (r *rollback) untilFrozen(ctx, guarded context.Context, caughtUp *latch) (err error) {
	if err := r.Step(guarded, hostingv1alpha1.MigrationCopying, "Copies what was written to annex into the main cluster", caughtUp.wait); err != nil {
		return err
	}
	if err := r.Step(guarded, hostingv1alpha1.MigrationVerifying, "Compares the main cluster's objects with those in annex", r.verify); err != nil {
		return errors.Join(err, r.syncProblem())
	}
	if err := r.UntilConfirmed(guarded, r.changed); err != nil {
		return err
	}
	if err := r.untilOwnersAllowed(guarded); err != nil {
		return err
	}
	err = r.Step(guarded, hostingv1alpha1.MigrationFollowing, "Raises the main cluster's revision above annex's", r.raise)
	if err != nil {
		return err
	}
	if err := r.changePolicies(guarded); err != nil {
		return err
	}
	if err := r.raise(guarded); err != nil { // above what other groups have written meanwhile
		return err
	}
	if r.froze, err = r.finalSync(ctx, guarded); err != nil {
		return errors.Join(err, r.thaw(context.WithoutCancel(ctx)))
	}
	// If it is unknown whether this succeeded, the group stays frozen until the next attempt.
	return r.SetPhase(ctx, hostingv1alpha1.MigrationSwitching, "Requests wait until the main cluster's revision is above annex's")
}

// changePolicies lets the main cluster's copy take writes, and holds the garbage collector. Each waits for seconds until
// all kube-apiservers know.
func (r *rollback) changePolicies(ctx context.Context) error {
	changing, ctx := errgroup.WithContext(ctx)
	changing.Go(func() error {
		return wrap(r.config.MainCopy.HoldGarbageCollector(ctx, r.group()), "hold the garbage collector for dependents of group %s", r.group())
	})
	changing.Go(func() error {
		return wrap(r.config.MainCopy.Unfreeze(ctx, r.group()), "allow writes to the main cluster's copy of group %s", r.group())
	})
	return changing.Wait()
}

// close makes the main cluster's copy unreachable. kube-apiserver makes its storage anew, so that watches
// from before the switch get 410 Gone.
func (r *rollback) close(ctx context.Context) error {
	return wrap(r.config.MainCopy.Close(ctx, r.group()), "close the main cluster's copy of group %s", r.group())
}

// returnRoutes makes the main cluster serve the group, whose objects it has. All of it can be repeated.
func (r *rollback) returnRoutes(ctx context.Context) error {
	if err := r.close(ctx); err != nil {
		return err
	}
	if err := r.closeAnnex(ctx); err != nil {
		return err
	}
	if err := r.untilRouted(ctx, false); err != nil {
		return err
	}
	if err := r.forEach(func(of *resource) error { return of.exporter.Return(ctx) }); err != nil {
		return err
	}
	if !r.froze.IsZero() {
		switchSeconds.Observe(time.Since(r.froze).Seconds())
	}
	return r.switchedTo(ctx, hostingv1alpha1.MigrationCleaning, "The main cluster serves the group; annex deletes its objects",
		"The main cluster serves group "+r.group())
}

// closeAnnex ends all watches in annex and lets requests wait, raises the main cluster's revision above every
// resource version that clients have got, and then allows that the APIServices are given back.
func (r *rollback) closeAnnex(ctx context.Context) error {
	var highest int64
	for _, of := range r.resources {
		version, err := of.exporter.Close(ctx)
		if err != nil {
			return err
		}
		highest = max(highest, version)
	}
	if _, err := r.config.MainCopy.RaiseRevision(ctx, highest); err != nil {
		return err
	}
	r.Status.LastResourceVersion = highest
	return r.SetPhase(ctx, hostingv1alpha1.MigrationSwitching, "Clients repeat requests until the main cluster serves it")
}

func (r *rollback) raise(ctx context.Context) error {
	above, err := r.annexRevision(ctx)
	if err != nil {
		return err
	}
	above += revisionMargin
	left, err := r.config.MainCopy.RevisionsBelow(ctx, above)
	if err != nil {
		return err
	}
	r.raising.Store(&raising{from: above - left, above: above})
	_, err = r.config.MainCopy.RaiseRevision(ctx, above)
	return err
}

// annexRevision returns the highest resource version that clients may have of the group.
func (r *rollback) annexRevision(ctx context.Context) (int64, error) {
	var highest int64
	for _, of := range r.resources {
		revision, err := r.config.MainCopy.InAnnex(of.Served).Revision(ctx)
		if err != nil {
			return 0, fmt.Errorf("read the resource version of %s in annex: %w", of.Name, err)
		}
		highest = max(highest, revision)
	}
	return highest, nil
}

func (r *rollback) thaw(ctx context.Context) error {
	return r.forEach(func(of *resource) error { return of.exporter.Thaw(ctx) })
}

// abandon makes the main cluster's copy unreachable again. What was copied stays there: the copy is
// not served.
func (r *rollback) abandon(ctx context.Context) error {
	if err := r.thaw(ctx); err != nil {
		return err
	}
	main := r.config.MainCopy
	for _, undo := range []func(ctx context.Context, group string) error{main.Close, main.EndExemption, main.ReleaseGarbageCollector, main.Freeze} {
		if err := undo(ctx, r.group()); err != nil {
			return err
		}
	}
	return r.forEach(func(of *resource) error { return of.exporter.Cancel(ctx) })
}

// startSyncers starts the Syncers. The latch opens once the copy lags by no more than the requests in flight.
func (r *rollback) startSyncers(ctx context.Context) (*latch, error) {
	caughtUp := newLatch(len(r.copies))
	for _, of := range r.copies {
		in := r.named(of.Name)
		if in == nil {
			return nil, fmt.Errorf("copy %s to the main cluster: it is not in annex", of.Name)
		}
		var err error
		if in.syncer, err = r.config.MainCopy.NewSyncer(of, in.exporter, r.pairs); err != nil {
			return nil, err
		}
	}
	r.workers = newWorkers(ctx)
	group := r.group()
	r.workers.run(func(ctx context.Context) error {
		r.followAdmission(ctx, group)
		return nil
	})
	for _, of := range r.copied() {
		r.workers.run(func(ctx context.Context) error {
			return wrap(of.syncer.Run(ctx, caughtUp.done), "copy %s to the main cluster", of.Name)
		})
	}
	return caughtUp, nil
}

// copied returns the resources that have a Syncer.
func (r *rollback) copied() []*resource {
	return slices.DeleteFunc(slices.Clone(r.resources), func(of *resource) bool { return of.syncer == nil })
}

// verify compares all objects, again while some differ: the Syncers go on, and on a slow cluster the copy lags.
func (r *rollback) verify(ctx context.Context) error {
	for _, of := range r.copied() {
		if err := untilEqual(ctx, of.syncer.Verify, func(err error) { r.differing.Store(&err) }); err != nil {
			return wrap(err, "compare the objects in annex with those in the main cluster")
		}
	}
	return nil
}

// untilEqual verifies until no object differs. It reports what differs, and nil at the end.
func untilEqual(ctx context.Context, verify func(context.Context) error, report func(error)) error {
	defer report(nil)
	for {
		err := verify(ctx)
		different := (*move.DifferentError)(nil)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case !errors.As(err, &different):
			return err
		}
		report(different)
	}
}
