// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package groupmove

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/annex-dev/annex/pkg/aggregated/maincopy"
	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/storage/move"
)

const (
	// revisionMargin is how far the main cluster's revision is raised above annex's before the switch,
	// so that little is left to do while the group is frozen.
	revisionMargin = 1_000
	// named is how many objects an error names.
	named = 10
)

// rollback moves a group from annex back to the main cluster.
type rollback struct {
	*Run
	copies    []maincopy.Resource
	pairs     *maincopy.Pairs
	admission admission
}

func (r *rollback) completed() string {
	return fmt.Sprintf("The main cluster serves group %s", r.group())
}

func (r *rollback) do(ctx, preparing context.Context) error {
	r.Problem = r.syncProblem
	switch r.Status.Phase {
	case hostingv1alpha1.MigrationSwitching:
		if err := r.find(ctx); err != nil {
			return err
		}
		if err := r.takeOver(ctx); err != nil {
			return err
		}
		if err := r.returnRoutes(ctx); err != nil {
			return err
		}
		return r.clean(ctx)
	case hostingv1alpha1.MigrationCleaning:
		if _, err := r.findPresent(ctx); err != nil {
			return err
		}
		if err := r.takeOver(ctx); err != nil {
			return err
		}
		return r.clean(ctx)
	}
	if err := r.begin(preparing); err != nil {
		return err
	}
	if err := r.find(preparing); err != nil {
		return err
	}
	if err := r.takeOver(ctx); err != nil {
		return err
	}
	if err := r.thaw(ctx); err != nil {
		return err
	}
	if err := r.open(preparing); err != nil {
		return err
	}
	if err := r.copyAndSwitch(ctx, preparing); err != nil {
		return err
	}
	return r.clean(ctx)
}

// takeOver fences all earlier attempts in the Stores, and reads the pairs that they have recorded.
func (r *rollback) takeOver(ctx context.Context) error {
	var err error
	if r.copies, err = r.config.MainCopy.Resources(ctx, r.group()); err != nil {
		return err
	}
	r.pairs = maincopy.NewPairs(r.group(), r.copies...)
	for _, of := range r.resources {
		of.exporter, err = r.config.NewExporter(of.hosted.Spec.StoreName, move.ExportConfig{
			Resource: of.groupResource(), UID: r.Migration.UID, HostedResource: of.hosted.UID,
		})
		if err != nil {
			return err
		}
		if err := of.exporter.TakeOver(ctx); err != nil {
			return err
		}
		if err := r.pairs.Load(ctx, maincopy.ResourceOf(of.main), of.exporter); err != nil {
			return err
		}
	}
	return nil
}

// begin checks that annex serves the group.
func (r *rollback) begin(ctx context.Context) error {
	if r.Status.StartTime != nil {
		return nil
	}
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

// checkRevision refuses what RaiseRevision would refuse for each object, again and again.
func (r *rollback) checkRevision(ctx context.Context) error {
	if _, err := r.findPresent(ctx); err != nil {
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

// isHosted reports whether the main cluster sends requests for the group to annex.
func (r *Run) isHosted(ctx context.Context) (bool, error) {
	s, err := r.state(ctx, nil)
	return err == nil && s.IsPublished(), err
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

// copyAndSwitch makes the main cluster's copy equal to annex's objects, and makes the main cluster
// serve them.
func (r *rollback) copyAndSwitch(ctx, preparing context.Context) error {
	s, err := r.sync(ctx)
	if err != nil {
		return err
	}
	defer s.end()
	guarded, cancel := context.WithCancelCause(s.ctx)
	defer cancel(nil)
	defer context.AfterFunc(preparing, func() { cancel(context.Cause(preparing)) })()
	if err := r.step(guarded, hostingv1alpha1.MigrationCopying, "Copies what was written to annex into the main cluster", s.caughtUp.wait); err != nil {
		return err
	}
	if err := r.step(guarded, hostingv1alpha1.MigrationVerifying, "Compares the objects in the main cluster with those in annex", s.verify); err != nil {
		return errors.Join(err, r.syncProblem())
	}
	if err := r.UntilConfirmed(guarded, r.changed); err != nil {
		return err
	}
	if err := r.untilOwnersAllowed(guarded); err != nil {
		return err
	}
	err = r.step(guarded, hostingv1alpha1.MigrationFollowing, "Raises the main cluster's revision above annex's", r.raise)
	if err != nil {
		return err
	}
	if err := r.config.MainCopy.HoldGarbageCollector(guarded, r.group()); err != nil {
		return wrap(err, "hold the garbage collector for dependents of group %s", r.group())
	}
	if err := r.config.MainCopy.Unfreeze(guarded, r.group()); err != nil {
		return wrap(err, "allow writes to the main cluster's copy of group %s", r.group())
	}
	started, err := r.finalSync(ctx, guarded, s)
	if err != nil {
		return errors.Join(err, r.thaw(context.WithoutCancel(ctx)))
	}
	// If it is unknown whether this succeeded, the group stays frozen until the next attempt.
	if err := r.SetPhase(ctx, hostingv1alpha1.MigrationSwitching, "Requests wait until the main cluster's revision is above annex's"); err != nil {
		return err
	}
	if err := r.returnRoutes(ctx); err != nil {
		return err
	}
	switchSeconds.Observe(time.Since(started).Seconds())
	return nil
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
	if err := r.untilRouted(ctx, r.versions(), false); err != nil {
		return err
	}
	for _, of := range r.resources {
		if err := of.exporter.Return(ctx); err != nil {
			return err
		}
	}
	now := metav1.Now()
	r.Status.SwitchTime = &now
	r.Event(corev1.EventTypeNormal, eventSwitched, "The main cluster serves group %s", r.group())
	return r.SetPhase(ctx, hostingv1alpha1.MigrationCleaning, "The main cluster serves the group; its objects in annex are being deleted")
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
	return r.SetPhase(ctx, hostingv1alpha1.MigrationSwitching, "Clients repeat their requests until the main cluster serves the group")
}

// raise raises the main cluster's revision above annex's.
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
		list, err := r.config.AnnexObjects.Resource(of.version()).List(ctx, metav1.ListOptions{Limit: 1})
		if err != nil {
			return 0, fmt.Errorf("read the resource version of %s in annex: %w", of.name(), err)
		}
		revision, err := strconv.ParseInt(list.GetResourceVersion(), 10, 64)
		if err != nil {
			return 0, fmt.Errorf("read the resource version of %s in annex: %w", of.name(), err)
		}
		highest = max(highest, revision)
	}
	return highest, nil
}

// thaw allows writes in annex.
func (r *rollback) thaw(ctx context.Context) error {
	for _, of := range r.resources {
		if err := of.exporter.Thaw(ctx); err != nil {
			return err
		}
	}
	return nil
}

// cancel makes the main cluster's copy unreachable again. What was copied stays there: the copy is
// not served.
func (r *rollback) cancel(ctx context.Context) error {
	if r.Status.Phase == hostingv1alpha1.MigrationSwitching {
		return move.ErrSwitched
	}
	if _, err := r.findPresent(ctx); err != nil {
		return err
	}
	if err := r.takeOver(ctx); err != nil {
		return err
	}
	if err := r.thaw(ctx); err != nil {
		return err
	}
	if err := r.config.MainCopy.Close(ctx, r.group()); err != nil {
		return err
	}
	if err := r.endExemption(ctx); err != nil {
		return err
	}
	if err := r.config.MainCopy.ReleaseGarbageCollector(ctx, r.group()); err != nil {
		return err
	}
	if err := r.config.MainCopy.Freeze(ctx, r.group()); err != nil {
		return err
	}
	for _, of := range r.resources {
		if err := of.exporter.Cancel(ctx); err != nil {
			return err
		}
	}
	return nil
}

// syncing is the time in which the main cluster's copy follows annex.
type syncing struct {
	ctx      context.Context
	stop     context.CancelCauseFunc
	syncers  []*move.Syncer
	caughtUp *latch
	running  sync.WaitGroup
}

func (r *rollback) sync(ctx context.Context) (*syncing, error) {
	s := &syncing{caughtUp: newLatch(len(r.copies))}
	for _, of := range r.copies {
		i := slices.IndexFunc(r.resources, func(in *resource) bool { return in.name() == of.Name })
		if i < 0 {
			return nil, fmt.Errorf("copy %s to the main cluster: it is not in annex", of.Name)
		}
		in := r.resources[i]
		var err error
		if in.syncer, err = r.config.MainCopy.NewSyncer(of, in.exporter, r.pairs); err != nil {
			return nil, err
		}
		s.syncers = append(s.syncers, in.syncer)
	}
	s.ctx, s.stop = context.WithCancelCause(ctx)
	group := r.group()
	s.running.Go(func() { r.followAdmission(s.ctx, group) })
	for i, syncer := range s.syncers {
		s.running.Go(func() {
			if err := syncer.Run(s.ctx, s.caughtUp.done); err != nil && s.ctx.Err() == nil {
				s.stop(wrap(err, "copy %s to the main cluster", r.copies[i].Name))
			}
		})
	}
	return s, nil
}

func (s *syncing) end() {
	s.stop(context.Canceled)
	s.running.Wait()
}

// verify compares all objects.
func (s *syncing) verify(ctx context.Context) error {
	for _, syncer := range s.syncers {
		if err := syncer.Verify(ctx); err != nil {
			return wrap(err, "compare the objects in annex with those in the main cluster")
		}
	}
	return nil
}
