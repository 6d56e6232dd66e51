// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package groupmove

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/annex-dev/annex/pkg/aggregated/group"
	"github.com/annex-dev/annex/pkg/aggregated/maincopy"
	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/storage/move"
)

const (
	// firstPause is between a switch that has failed and the next one. It doubles with each, up to longestPause:
	// clients notice each of them.
	firstPause   = 10 * time.Second
	longestPause = 5 * time.Minute
	// openTimeout bounds a switch, in which clients wait. It needs a second; kube-apiserver ends requests after a minute.
	openTimeout = 30 * time.Second
)

var errNotOpened = fmt.Errorf("annex did not have the last changes within %s", openTimeout)

type moveIn struct {
	*Run
	following *following
	// refused is set if a Store cannot take a resource, because it has objects of its own.
	refused *move.Refusal
	// failed is the error of the last switch, which was undone. The next one is at again, pause after it.
	failed error
	pause  time.Duration
	again  time.Time
	// sound are the probes that the main cluster answered before the switch.
	sound map[string]bool
	load  *move.Pace
}

func (m *moveIn) completed() string {
	if m.Status.CopiedObjects == 0 {
		return fmt.Sprintf("annex serves group %s", m.group())
	}
	return fmt.Sprintf("annex serves group %s. The main cluster keeps its copy as it was, until kubectl annex finalize %s", m.group(), m.group())
}

func (m *moveIn) perform(ctx, preparing context.Context, s step) error {
	switch s {
	case stepBegin:
		if m.Status.Phase == hostingv1alpha1.MigrationSwitching {
			preparing = ctx
		}
		return m.begin(preparing)
	case stepRefuse:
		return m.refusal()
	case stepAdopt:
		return m.adopt(ctx, preparing)
	case stepRoute:
		return m.route(ctx)
	case stepCopy:
		return m.copy(preparing)
	case stepSwitch:
		return m.switchOver(ctx, preparing)
	case stepOpenRest:
		return m.openRest(ctx)
	case stepRecord:
		return m.record(ctx)
	case stepSettle:
		return m.whileTakenOver(ctx, m.settle)
	case stepObserve:
		return m.whileTakenOver(ctx, m.observe)
	case stepForget:
		return m.config.MainCopy.Forget(ctx, m.group())
	case stepUndo:
		return m.undoSwitch(ctx)
	}
	return m.discard(ctx)
}

// begin checks whether the group can be moved, and labels its definitions.
func (m *moveIn) begin(ctx context.Context) error {
	definitions, err := m.mainDefinitions(ctx)
	if err != nil {
		return err
	}
	if len(definitions) == 0 {
		return m.undefined()
	}
	if m.Status.StartTime == nil {
		if err := m.mayBegin(ctx, definitions); err != nil {
			return err
		}
		if err := m.preassign(ctx, definitions); err != nil {
			return err
		}
		if err := m.start(ctx, "Creates the definitions of the group in annex"); err != nil {
			return err
		}
		m.Event(corev1.EventTypeNormal, eventStarted, "Moving group %s into annex", m.group())
	}
	return m.label(ctx, definitions, "true")
}

func (m *moveIn) undefined() error {
	return refuse(reasonNotFound, "The main cluster has no definitions of group %s", m.group())
}

func (m *moveIn) mayBegin(ctx context.Context, definitions []*definition) error {
	s, err := m.state(ctx, definitions)
	if err != nil {
		return err
	}
	if s.IsTakenOver() || s.IsPublished() {
		return refuse(reasonHosted, "annex serves group %s already", m.group())
	}
	if obstacles := s.Obstacles(); len(obstacles) > 0 {
		return refuse(reasonObstacles, "Group %s cannot be moved: %s", m.group(), strings.Join(obstacles, "; "))
	}
	for _, crd := range definitions {
		if _, err := m.config.MainCopy.InMain(maincopy.ResourceOf(crd).Served).Count(ctx); err != nil {
			return wrap(err, "list %s in the main cluster", crd.Name)
		}
	}
	return m.config.MainCopy.MayFreeze(ctx, m.group())
}

// preassign creates the HostedResources of the group on the Store of the Migration, if it names one.
func (m *moveIn) preassign(ctx context.Context, definitions []*definition) error {
	if m.Migration.Spec.StoreName == "" {
		return nil
	}
	_, err := m.config.AnnexHosting.Stores().Get(ctx, m.Migration.Spec.StoreName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return refuse(reasonStoreNotFound, "There is no Store %q", m.Migration.Spec.StoreName)
	}
	if err != nil {
		return fmt.Errorf("read store %s: %w", m.Migration.Spec.StoreName, err)
	}
	for _, crd := range definitions {
		wanted := group.NewHostedResource(crd.Name, m.Migration.Spec.StoreName)
		_, err := m.config.AnnexHosting.HostedResources().Create(ctx, wanted, metav1.CreateOptions{FieldManager: fieldManager})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("create hosted resource %s: %w", crd.Name, err)
		}
	}
	return nil
}

// fence fences all earlier attempts in the Stores: none of them opens a resource from then on.
func (m *moveIn) fence(ctx context.Context) error {
	var states []move.State
	for _, of := range m.resources {
		if err := m.fenceOne(ctx, of); err != nil {
			return err
		}
		states = append(states, of.state)
	}
	m.records = summary(states)
	return nil
}

func (m *moveIn) fenceOne(ctx context.Context, of *resource) (err error) {
	if of.importer == nil {
		config := move.Config{
			Resource: of.Served.GroupResource(), UID: m.Migration.UID, HostedResource: of.hosted.UID, Source: m.config.MainCopy.InMain(of.Served),
			Report: func(progress move.Progress) { of.progress.Store(&progress) }, Pace: m.load,
		}
		if limit := m.Migration.Spec.ObjectsPerSecond; limit > 0 {
			config.Limit = rate.NewLimiter(rate.Limit(limit), 1)
		}
		if of.importer, err = m.config.NewImporter(of.hosted.Spec.StoreName, config); err != nil {
			return err
		}
	}
	if of.state, err = of.importer.Fence(ctx); err != nil || of.state != move.Absent || m.Status.SwitchTime != nil {
		return err
	}
	err = of.importer.Check(ctx)
	var refused *move.Refusal
	if !errors.As(err, &refused) {
		return err
	}
	if refused.Reason == move.ReasonNotEmpty {
		of.state, m.refused = occupied, refused
		return nil
	}
	if m.canceled {
		return nil // there is nothing to undo
	}
	return err
}

// refusal returns the reason for which the copy is not continued.
func (m *moveIn) refusal() error {
	switch m.records {
	case recordsDiscarded:
		return m.discarded()
	case recordsGone:
		return m.undefined()
	}
	return m.refused
}

// each calls do for all resources, two at a time.
func (m *moveIn) each(ctx context.Context, do func(ctx context.Context, of *resource) error) error {
	working, ctx := errgroup.WithContext(ctx)
	working.SetLimit(2)
	for _, of := range m.resources {
		working.Go(func() error { return do(ctx, of) })
	}
	return working.Wait()
}

func (m *moveIn) copy(preparing context.Context) error {
	// From then on annex may give the group back, because nothing is written to it.
	err := m.each(preparing, func(ctx context.Context, of *resource) error { return of.importer.Claim(ctx) })
	if refused := (*move.Refusal)(nil); errors.As(err, &refused) && refused.Reason == move.ReasonNotEmpty {
		m.records = recordsUnknown // a client of annex or a static source has created an object since they were read
		return nil
	}
	if err != nil {
		return err
	}
	err = m.Step(preparing, hostingv1alpha1.MigrationCopying, "Copies the objects into annex", func(ctx context.Context) error {
		return m.each(ctx, func(ctx context.Context, of *resource) error { return of.importer.Copy(ctx) })
	})
	if err == nil {
		m.records = recordsFollowing
	}
	return err
}

// switchOver follows the main cluster until the group may be switched, and makes annex serve it. If the switch itself
// fails, what the Stores record decides which side serves the group.
func (m *moveIn) switchOver(ctx, preparing context.Context) error {
	f := m.follow(ctx)
	if err := f.guard(preparing, func(ctx context.Context) error { return m.untilSwitchable(ctx, f) }); err != nil {
		f.end()
		return err
	}
	if err := m.SetPhase(ctx, hostingv1alpha1.MigrationSwitching, "Requests wait until annex has the last changes"); err != nil {
		return err
	}
	started := time.Now()
	if err := m.untilOpened(f); err != nil {
		m.failed, m.records = errors.Join(append(f.endLate(), err)...), recordsUnknown
		return nil
	}
	switchSeconds.Observe(time.Since(started).Seconds())
	m.following, m.records = f, recordsOpen
	return nil
}

// untilOpened waits until requests go to annex and its Stores are open, for openTimeout at most.
func (m *moveIn) untilOpened(f *following) error {
	ctx, cancel := context.WithTimeoutCause(f.ctx, openTimeout, errNotOpened)
	defer cancel()
	if err := m.untilRouted(ctx, true); err != nil {
		return err
	}
	close(f.routed)
	return f.opened.wait(ctx)
}

func (m *moveIn) untilSwitchable(ctx context.Context, f *following) error {
	if err := m.untilAgain(ctx); err != nil {
		return err
	}
	if err := m.Step(ctx, hostingv1alpha1.MigrationFollowing, "Copies what is written to the main cluster meanwhile", f.caughtUp.wait); err != nil {
		return err
	}
	err := m.Step(ctx, hostingv1alpha1.MigrationVerifying, "Compares the objects in annex with those in the main cluster", func(ctx context.Context) error {
		return m.each(ctx, func(ctx context.Context, of *resource) error { return of.importer.Verify(ctx) })
	})
	if err != nil {
		return err
	}
	if err := m.UntilConfirmed(ctx, m.changed); err != nil {
		return err
	}
	if err := m.untilReady(ctx); err != nil {
		return err
	}
	if err := m.findSound(ctx); err != nil {
		return err
	}
	// An attempt may have ended while it gave the routes of an earlier switch back.
	if err := m.untilReturned(ctx); err != nil {
		return err
	}
	close(f.proving)
	return f.proven.wait(ctx)
}

// undoSwitch makes the main cluster serve the group again. If the main cluster is slow or a connection was lost, the
// switch is tried again, and the copy is followed meanwhile.
func (m *moveIn) undoSwitch(ctx context.Context) error {
	why := "annex was restarted"
	switch {
	case m.canceled:
		why = "the Migration was canceled"
	case m.failed != nil:
		why = m.failed.Error()
	}
	err := m.SetPhase(ctx, hostingv1alpha1.MigrationFollowing, "The main cluster serves the group again, because the switch did not succeed: "+why)
	if err == nil {
		err = m.untilReturned(ctx)
	}
	if err == nil {
		err = untilRefused(ctx, time.Now())
	}
	switch {
	case err != nil:
		return errors.Join(m.failed, err)
	case m.failed == nil || m.canceled:
		return nil
	}
	return m.retry(m.failed)
}

// untilReturned waits until the main cluster has the routes. The controller of groups withdraws the takeover: one that is
// recorded counts as one that took place.
func (m *moveIn) untilReturned(ctx context.Context) error {
	err := until(ctx, func(ctx context.Context) (bool, error) {
		taken, err := m.isTakenOver(ctx)
		return !taken, err
	})
	if err != nil {
		return err
	}
	return m.untilRouted(ctx, false)
}

// retry returns an error that another switch would meet again. For others it sets the time of the next switch.
func (m *moveIn) retry(failed error) error {
	if !errors.Is(failed, move.ErrWatchLost) && !errors.Is(failed, errNotRouted) && !errors.Is(failed, errNotOpened) {
		return failed
	}
	m.pause = cmp.Or(min(2*m.pause, longestPause), firstPause)
	m.failed, m.again = failed, time.Now().Add(m.pause)
	m.Event(corev1.EventTypeWarning, eventFailed, "The main cluster serves group %s again, because the switch did not succeed: %v", m.group(), failed)
	return nil
}

func (m *moveIn) untilAgain(ctx context.Context) error {
	if m.failed == nil {
		return nil
	}
	message := fmt.Sprintf("The next switch is not before %s. The copy is kept up to date. The last switch did not succeed: %v",
		m.again.UTC().Format(time.RFC3339), m.failed)
	if err := m.Describe(ctx, hostingv1alpha1.MigrationRetrying, message); err != nil {
		return err
	}
	return m.During(ctx, func(ctx context.Context) error {
		return until(ctx, func(context.Context) (bool, error) { return !time.Now().Before(m.again), nil })
	})
}

// openRest opens the resources that were closed when an attempt ended. All have every change.
func (m *moveIn) openRest(ctx context.Context) error {
	lowest, err := m.mainRevision(ctx)
	if err != nil {
		return err
	}
	err = m.forEach(func(of *resource) error {
		if !of.isCopy() {
			return nil // its definition was added since, and it is open
		}
		return of.importer.Open(ctx, lowest)
	})
	if err == nil {
		m.records = recordsOpen
	}
	return err
}

// discard removes the copy from annex. The routes may be there, if an attempt has ended while it gave them back.
func (m *moveIn) discard(ctx context.Context) error {
	if slices.ContainsFunc(m.resources, (*resource).isCopy) {
		err := m.untilReturned(ctx)
		if err == nil && m.Status.Phase != hostingv1alpha1.MigrationPending && m.Status.Phase != hostingv1alpha1.MigrationCopying {
			err = untilRefused(ctx, time.Now())
		}
		if err != nil {
			return err
		}
	}
	if err := m.forEach(func(of *resource) error { return of.importer.Cancel(ctx) }); err != nil {
		return err
	}
	err := m.config.MainCopy.Forget(ctx, m.group())
	if apierrors.IsForbidden(err) && m.records != recordsOccupied {
		return nil // only an adoption freezes the main cluster before the switch, and annex may have lost its rights
	}
	return err
}

// adopt makes annex serve objects that it has already, for example from a backup. There is nothing to copy: the main
// cluster must have no object of the group, and is frozen before that is checked.
func (m *moveIn) adopt(ctx, preparing context.Context) error {
	if err := m.config.MainCopy.Freeze(preparing, m.group()); err != nil {
		return wrap(err, "freeze group %s in the main cluster", m.group())
	}
	for _, of := range m.resources {
		count, err := m.config.MainCopy.InMain(of.Served).Count(preparing)
		if err == nil && count > 0 {
			err = m.refused
		}
		if err != nil {
			return err
		}
	}
	if err := m.untilReady(preparing); err != nil {
		return err
	}
	if err := m.raiseAboveMain(preparing, adoptMargin); err != nil {
		return err
	}
	// Clients may write to annex from when the main cluster has the routes.
	err := m.forEach(func(of *resource) error { return of.importer.Adopt(preparing) })
	if err == nil {
		m.records = recordsAdopted
	}
	return err
}

// route waits for the routes to annex, whose Stores are open. They are not given back: annex may have acknowledged
// writes. If they do not arrive, a Rollback takes the objects along.
func (m *moveIn) route(ctx context.Context) error {
	if m.Status.Phase != hostingv1alpha1.MigrationSwitching {
		if err := m.SetPhase(ctx, hostingv1alpha1.MigrationSwitching, "Requests go to annex, which has the objects already"); err != nil {
			return err
		}
	}
	started := time.Now()
	err := m.untilRouted(ctx, true)
	if errors.Is(err, errNotRouted) {
		if taken, takenErr := m.isTakenOver(ctx); takenErr != nil || !taken {
			return errors.Join(err, takenErr)
		}
		return nil
	}
	switchSeconds.Observe(time.Since(started).Seconds())
	return err
}
