// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package groupmove

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	apiextensionshelpers "k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/annex-dev/annex/pkg/aggregated/group"
	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/storage/move"
)

// creationDelay is how long after a definition was established its server delays requests that create
// objects, by as much (crdHandler in k8s.io/apiextensions-apiserver).
const creationDelay = 2 * time.Second

// moveIn moves a group from the main cluster into annex.
type moveIn struct {
	*Run
	// sound are the probes that the main cluster answered before the switch.
	sound map[string]bool
}

func (m *moveIn) completed() string {
	if m.Status.CopiedObjects == 0 {
		return fmt.Sprintf("annex serves group %s", m.group())
	}
	return fmt.Sprintf("annex serves group %s. The main cluster keeps its copy as it was, until kubectl annex finalize %s", m.group(), m.group())
}

func (m *moveIn) do(ctx, preparing context.Context) error {
	if m.Status.SwitchTime != nil {
		return m.settle(ctx)
	}
	finding := preparing
	if m.Status.Phase == hostingv1alpha1.MigrationSwitching {
		finding = ctx // an interrupted attempt may have opened a resource
	}
	if err := m.begin(finding); err != nil {
		return err
	}
	if err := m.find(finding); err != nil {
		return err
	}
	if err := m.newImporters(); err != nil {
		return err
	}
	// From then on no earlier attempt opens a resource.
	switched, err := m.takeOver(ctx)
	if err != nil {
		return err
	}
	if switched {
		// Another attempt ended while it opened them: all had every change.
		if err := m.openRest(ctx); err != nil {
			return err
		}
		if err := m.opened(ctx); err != nil {
			return err
		}
		return m.whileTakenOver(ctx, m.observe)
	}
	refused, err := m.notEmpty(ctx)
	if err != nil {
		return err
	}
	if refused != nil {
		return m.adopt(ctx, preparing, refused)
	}
	if m.Status.Phase == hostingv1alpha1.MigrationSwitching {
		if err := m.undoSwitch(ctx, "annex was restarted"); err != nil {
			return err
		}
	}
	return m.copyAndSwitch(ctx, preparing)
}

// begin checks whether the group can be moved, and labels its definitions.
func (m *moveIn) begin(ctx context.Context) error {
	definitions, err := m.mainDefinitions(ctx)
	if err != nil {
		return err
	}
	if len(definitions) == 0 {
		return refuse(reasonNotFound, "The main cluster has no definitions of group %s", m.group())
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

// mayBegin returns why the group cannot be moved.
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
		if _, err := m.config.MainObjects((&resource{main: crd}).version()).Count(ctx); err != nil {
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
	if _, err := m.config.AnnexHosting.Stores().Get(ctx, m.Migration.Spec.StoreName, metav1.GetOptions{}); apierrors.IsNotFound(err) {
		return refuse(reasonStoreNotFound, "There is no Store %q", m.Migration.Spec.StoreName)
	}
	for _, crd := range definitions {
		_, err := m.config.AnnexHosting.HostedResources().Create(ctx, &hostingv1alpha1.HostedResource{
			ObjectMeta: metav1.ObjectMeta{
				Name: crd.Name, Labels: map[string]string{hostingv1alpha1.AutomanagedLabel: "true"},
				Annotations: map[string]string{hostingv1alpha1.DefinitionFromAnnotation: hostingv1alpha1.DefinitionFromMain},
			},
			Spec: hostingv1alpha1.HostedResourceSpec{StoreName: m.Migration.Spec.StoreName},
		}, metav1.CreateOptions{FieldManager: fieldManager})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("create hosted resource %s: %w", crd.Name, err)
		}
	}
	return nil
}

func (m *moveIn) newImporters() error {
	pace := &move.Pace{}
	for _, of := range m.resources {
		config := move.ImportConfig{
			Resource: of.groupResource(), UID: m.Migration.UID, HostedResource: of.hosted.UID, From: m.config.MainObjects(of.version()),
			Report: func(progress move.Progress) { of.progress.Store(&progress) }, Pace: pace,
		}
		if limit := m.Migration.Spec.ObjectsPerSecond; limit > 0 {
			config.Limit = rate.NewLimiter(rate.Limit(limit), 1)
		}
		var err error
		if of.importer, err = m.config.NewImporter(of.hosted.Spec.StoreName, config); err != nil {
			return err
		}
	}
	return nil
}

// isSwitched reports whether a resource is open in annex.
func (m *moveIn) isSwitched(ctx context.Context) (bool, error) {
	return m.anySwitched(ctx, (*move.Importer).State)
}

// takeOver fences all earlier attempts in the Stores, and reports whether one of them has opened a resource.
func (m *moveIn) takeOver(ctx context.Context) (switched bool, err error) {
	return m.anySwitched(ctx, (*move.Importer).TakeOver)
}

func (m *moveIn) anySwitched(ctx context.Context, stateOf func(*move.Importer, context.Context) (move.State, error)) (switched bool, err error) {
	for _, of := range m.resources {
		state, err := stateOf(of.importer, ctx)
		if err != nil {
			return false, err
		}
		switched = switched || state == move.Switched
	}
	return switched, nil
}

// each calls do for all resources, two at a time.
func (m *moveIn) each(ctx context.Context, do func(ctx context.Context, of *resource) error) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(2)
	for _, of := range m.resources {
		group.Go(func() error { return do(ctx, of) })
	}
	return group.Wait()
}

// copyAndSwitch copies the objects, verifies the copy, and switches the group.
func (m *moveIn) copyAndSwitch(ctx, preparing context.Context) error {
	// From then on the controller of groups may give the group back, because nothing is written to annex.
	if err := m.each(preparing, func(ctx context.Context, of *resource) error { return of.importer.Claim(ctx) }); err != nil {
		return err
	}
	err := m.step(preparing, hostingv1alpha1.MigrationCopying, "Copies the objects into annex", func(ctx context.Context) error {
		return m.each(ctx, func(ctx context.Context, of *resource) error { return of.importer.Copy(ctx) })
	})
	if err != nil {
		return err
	}
	return m.untilSwitched(ctx, func(failed *failedSwitch) error { return m.followAndSwitch(ctx, preparing, failed) })
}

// followAndSwitch follows the main cluster until the group may be switched, and switches it.
func (m *moveIn) followAndSwitch(ctx, preparing context.Context, failed *failedSwitch) error {
	f := m.follow(ctx)
	defer f.end() // late writes were reported, if the group was switched
	// What follows ends with either.
	guarded, cancel := context.WithCancelCause(f.ctx)
	defer cancel(nil)
	defer context.AfterFunc(preparing, func() { cancel(context.Cause(preparing)) })()
	if err := m.untilAgain(guarded, failed); err != nil {
		return err
	}
	if err := m.step(guarded, hostingv1alpha1.MigrationFollowing, "Copies what is written to the main cluster meanwhile", f.caughtUp.wait); err != nil {
		return err
	}
	err := m.step(guarded, hostingv1alpha1.MigrationVerifying, "Compares the objects in annex with those in the main cluster", func(ctx context.Context) error {
		return m.each(ctx, func(ctx context.Context, of *resource) error { return of.importer.Verify(ctx) })
	})
	if err != nil {
		return err
	}
	if err := m.UntilConfirmed(guarded, m.changed); err != nil {
		return err
	}
	if err := m.untilReady(guarded); err != nil {
		return err
	}
	if err := m.findSound(guarded); err != nil {
		return err
	}
	close(f.proving)
	if err := f.proven.wait(guarded); err != nil {
		return err
	}
	return m.switchOver(ctx, f)
}

// untilReady waits until the main cluster's definitions have annex's finalizer, and requests that create objects are
// not delayed in annex. They are in a group without objects, as after any new definition.
func (m *moveIn) untilReady(ctx context.Context) error {
	return m.untilReported(ctx, func(ctx context.Context) (string, error) {
		definitions, err := m.mainDefinitions(ctx)
		if err != nil {
			return "", err
		}
		for _, crd := range definitions {
			if !slices.Contains(crd.Finalizers, hostingv1alpha1.Finalizer(m.config.PublishedBy)) {
				return fmt.Sprintf("Waiting until definition %s of the main cluster has annex's finalizer", crd.Name), nil
			}
		}
		for _, of := range m.resources {
			if of.isEmpty() {
				continue
			}
			crd, err := m.config.AnnexDefinitions.Get(ctx, of.name(), metav1.GetOptions{})
			if err != nil {
				return "", fmt.Errorf("read definition %s in annex: %w", of.name(), err)
			}
			established := apiextensionshelpers.FindCRDCondition(crd, apiextensionsv1.Established)
			if established == nil || time.Since(established.LastTransitionTime.Time) < creationDelay {
				return fmt.Sprintf("Waiting until annex does not delay requests that create %s", of.name()), nil
			}
		}
		return "", nil
	})
}

func (r *Run) step(ctx context.Context, phase hostingv1alpha1.MigrationPhase, message string, do func(context.Context) error) error {
	if err := r.SetPhase(ctx, phase, message); err != nil {
		return err
	}
	return r.During(ctx, do)
}

// switchOver makes annex serve the group. If that fails before a resource is open in annex, the main
// cluster serves it again.
func (m *moveIn) switchOver(ctx context.Context, f *following) error {
	if err := m.SetPhase(ctx, hostingv1alpha1.MigrationSwitching, "Requests wait until annex has the last changes"); err != nil {
		return err
	}
	started := time.Now()
	err := m.untilRouted(f.ctx, m.versions(), true)
	if err == nil {
		close(f.routed)
		err = f.opened.wait(f.ctx)
	}
	if err != nil {
		err = errors.Join(append(f.end(), err)...)
		if switched, stateErr := m.isSwitched(ctx); stateErr != nil || switched {
			return errors.Join(err, stateErr) // the next attempt opens the rest
		}
		if undoErr := m.undoSwitch(ctx, err.Error()); undoErr != nil {
			return errors.Join(err, undoErr)
		}
		return &failedSwitch{error: err}
	}
	switchSeconds.Observe(time.Since(started).Seconds())
	if err := m.opened(ctx, f); err != nil {
		return err
	}
	return m.whileTakenOver(ctx, m.observe)
}

// undoSwitch makes the main cluster serve the group again.
func (m *moveIn) undoSwitch(ctx context.Context, why string) error {
	if err := m.SetPhase(ctx, hostingv1alpha1.MigrationFollowing, "The main cluster serves the group again, because the switch did not succeed: "+why); err != nil {
		return err
	}
	if err := m.untilWithdrawn(ctx); err != nil {
		return err
	}
	if err := m.untilRouted(ctx, m.versions(), false); err != nil {
		return err
	}
	return untilRefused(ctx, time.Now())
}

// untilWithdrawn waits until the controller of groups has withdrawn the takeover: one that is recorded counts as one that took place.
func (m *moveIn) untilWithdrawn(ctx context.Context) error {
	return until(ctx, func(ctx context.Context) (bool, error) {
		taken, err := m.isTakenOver(ctx)
		return !taken, err
	})
}

// isTakenOver reports whether a takeover of the group is recorded. Its routes may be lost.
func (m *moveIn) isTakenOver(ctx context.Context) (bool, error) {
	hosted, err := m.hosted(ctx)
	return err == nil && m.stateOf(group.Objects{Hosted: hosted}).IsTakenOver(), err
}

func (m *moveIn) openRest(ctx context.Context) error {
	lowest, err := m.mainRevision(ctx)
	if err != nil {
		return err
	}
	for _, of := range m.resources {
		if err := of.importer.Open(ctx, lowest); err != nil {
			return err
		}
	}
	return nil
}

// mainRevision returns the revision of the main cluster's etcd. APIServices are small, unlike definitions.
func (r *Run) mainRevision(ctx context.Context) (int64, error) {
	list, err := r.config.MainAPIServices.List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return 0, fmt.Errorf("read the revision of the main cluster: %w", err)
	}
	revision, err := strconv.ParseInt(list.ResourceVersion, 10, 64)
	return revision, wrap(err, "read the revision of the main cluster")
}

func (r *Run) versions() []groupVersion {
	var definitions []*definition
	for _, of := range r.resources {
		definitions = append(definitions, of.main)
	}
	return versions(definitions)
}

// cancel removes the copy from annex.
func (m *moveIn) cancel(ctx context.Context) error {
	// The attempt may have ended before it found all of them.
	if _, err := m.findPresent(ctx); err != nil {
		return err
	}
	if err := m.newImporters(); err != nil {
		return err
	}
	switched, err := m.takeOver(ctx)
	if err != nil {
		return err
	}
	if switched {
		return move.ErrSwitched
	}
	if m.Status.Phase == hostingv1alpha1.MigrationSwitching {
		if err := m.undoSwitch(ctx, "the Migration was canceled"); err != nil {
			return err
		}
	}
	if err := m.untilWithdrawn(ctx); err != nil {
		return err
	}
	for _, of := range m.resources {
		if err := of.importer.Cancel(ctx); err != nil {
			return err
		}
	}
	// Only what annex adopts was frozen before the switch. annex may have lost the right to remove the policy.
	adopted, err := m.notEmpty(ctx)
	if err != nil || adopted == nil {
		return err
	}
	return m.config.MainCopy.Forget(ctx, m.group())
}
