// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package groupmove

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/annex-dev/annex/pkg/aggregated/maincopy"
	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/controller/migration/migrationstatus"
	"github.com/annex-dev/annex/pkg/storage/move"
)

const (
	// A moved group must be served for observePeriod without a problem. A problem that lasts for undoPeriod rolls the
	// group back.
	observePeriod = 5 * time.Second
	undoPeriod    = 30 * time.Second
	// Within watchesPeriod the main cluster's kube-apiservers have ended watches.
	watchesPeriod = 3 * time.Second
	// adoptMargin is the number of revisions by which adopted objects' resource versions are above the main cluster's
	// revision, which grows until the routes have arrived.
	adoptMargin = 1_000
	// observeInterval is the time between two checks.
	observeInterval = time.Second
	// undoSuffix ends the name of the Migration that rolls a move back.
	undoSuffix = "-undo"
)

// record records that annex serves the group.
func (m *moveIn) record(ctx context.Context) error {
	if err := m.markMainCopy(ctx, metav1.Now().UTC().Format(time.RFC3339)); err != nil {
		return err
	}
	return m.switchedTo(ctx, hostingv1alpha1.MigrationObserving, "annex serves the group; checks that clients reach it", "annex serves group "+m.group())
}

// errDeleted ends what works on a group whose definitions were all deleted since the switch.
var errDeleted = errors.New("all definitions of the group were deleted")

// whileTakenOver calls do, until the group is deleted: then there is nothing left to freeze or to observe.
func (m *moveIn) whileTakenOver(ctx context.Context, do func(ctx context.Context) error) error {
	within, cancel := context.WithCancelCause(ctx)
	var checks sync.WaitGroup
	defer checks.Wait()
	defer cancel(nil)
	checks.Go(func() {
		_ = untilEvery(within, observeInterval, func(ctx context.Context) (bool, error) {
			taken, err := m.isTakenOver(ctx)
			if err == nil && !taken {
				cancel(errDeleted)
			}
			return false, nil
		})
	})
	err := do(within)
	if errors.Is(context.Cause(within), errDeleted) {
		m.deleted = true
		return nil
	}
	return err
}

// settle freezes the main cluster's copy, and ends what follows it and what clients still watch there.
func (m *moveIn) settle(ctx context.Context) error {
	if err := m.config.MainCopy.Freeze(ctx, m.group()); err != nil {
		return wrap(err, "freeze the main cluster's copy of group %s", m.group())
	}
	// Nothing more can be written there.
	definitions, err := m.mainDefinitions(ctx)
	if err != nil {
		return err
	}
	complete := m.following != nil && m.added(definitions) == nil
	if m.following != nil {
		for _, err := range m.following.endLate() {
			if err := m.reportLate(err); err != nil {
				klog.FromContext(ctx).V(2).Info("Late writes are read from the main cluster's copy", "group", m.group(), "err", err)
				complete = false
			}
		}
	}
	if !complete {
		return m.reconcile(ctx)
	}
	return wrap(m.config.MainCopy.EndWatches(ctx, m.group()), "end the main cluster's watches of group %s", m.group())
}

// reconcile applies the writes that the main cluster accepted after the switch, and that no watch has
// delivered: one that follows the main cluster ends with its API server, and with annex. The main
// cluster's copy is frozen.
func (m *moveIn) reconcile(ctx context.Context) error {
	opened, err := m.config.MainCopy.Open(ctx, m.group())
	if err != nil {
		return wrap(err, "open the main cluster's copy of group %s", m.group())
	}
	for _, of := range opened {
		if err := m.reconcileOne(ctx, of); err != nil {
			return wrap(err, "look for late writes of group %s in the main cluster's copy", m.group())
		}
	}
	return wrap(m.config.MainCopy.Close(ctx, m.group()), "close the main cluster's copy of group %s", m.group())
}

// reconcileOne reconciles a resource. If its definition was added since the copy, it has nothing to compare with.
func (m *moveIn) reconcileOne(ctx context.Context, of maincopy.Resource) error {
	main := m.config.MainCopy.Opened(of)
	if moved := m.named(of.Name); moved != nil && moved.isCopy() {
		return m.reportLate(moved.importer.Reconcile(ctx, main))
	}
	count, err := main.Count(ctx)
	if count > 0 {
		m.Event(corev1.EventTypeWarning, eventLate, "The definition %s was added during the switch, and the main cluster has accepted %d objects that annex does not have", of.Name, count)
	}
	return err
}

// reportLate records an event if late writes could not be applied. It returns all other errors.
func (m *moveIn) reportLate(err error) error {
	late := (*move.LateError)(nil)
	if !errors.As(err, &late) {
		return err
	}
	m.Event(corev1.EventTypeWarning, eventLate, "The main cluster accepted writes after the switch that annex could not apply, because the objects were written in annex too: %v", err)
	return nil
}

// markMainCopy sets the annotation of annex's definitions, or removes it if the value is empty.
func (r *Run) markMainCopy(ctx context.Context, value string) error {
	definitions, err := r.mainDefinitions(ctx)
	if err != nil {
		return err
	}
	patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%s}}}`, hostingv1alpha1.MainCopyAnnotation, orNull(value))
	for _, crd := range definitions {
		_, err := r.config.AnnexDefinitions.Patch(ctx, crd.Name, types.MergePatchType, []byte(patch), metav1.PatchOptions{FieldManager: fieldManager})
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("annotate definition %s in annex: %w", crd.Name, err)
		}
	}
	return nil
}

// observe returns once annex has reached the group through the main cluster for observePeriod without a problem.
// If a problem lasts, it creates a Migration that rolls the group back, and fails. Only its own requests count:
// requests of tenants must not undo a move.
func (m *moveIn) observe(ctx context.Context) error {
	var problem string
	began := time.Now()
	since, raised := began, false
	return untilEvery(ctx, observeInterval, func(ctx context.Context) (bool, error) {
		if !raised && time.Since(began) > watchesPeriod {
			if err := m.raiseAboveMain(ctx, 0); err != nil {
				return false, err
			}
			raised = true
		}
		definitions, err := m.mainDefinitions(ctx)
		if err != nil { // an outage of the main cluster is no reason to give the group back
			since, problem = time.Now(), ""
			return false, m.Describe(ctx, migrationstatus.ReasonWaiting, "annex serves the group; waits for the main cluster: "+err.Error())
		}
		found := m.problem(ctx, definitions)
		if (found == "") != (problem == "") {
			since = time.Now()
		}
		problem = found
		switch {
		case problem == "" && raised && time.Since(since) > observePeriod:
			return true, nil
		case problem == "":
			return false, m.Describe(ctx, migrationstatus.ReasonWaiting, "annex serves the group; checks that clients reach it")
		case time.Since(since) > undoPeriod:
			return false, m.undo(ctx, problem)
		}
		return false, m.Describe(ctx, migrationstatus.ReasonWaiting, "annex serves the group, with a problem: "+problem)
	})
}

// raiseAboveMain makes the resource versions of the group higher than the main cluster's revision, once the last
// watches there have ended: a bookmark may have given clients a revision that annex's would reach much later,
// and their watches here would be silent until then.
func (m *moveIn) raiseAboveMain(ctx context.Context, margin int64) error {
	above, err := m.mainRevision(ctx)
	if err != nil {
		return err
	}
	return m.forEach(func(of *resource) error {
		return wrap(of.importer.Raise(ctx, above+margin), "raise the resource versions of %s above the main cluster's", of.Name)
	})
}

// undo makes a Migration that rolls the group back, and fails this one.
func (m *moveIn) undo(ctx context.Context, problem string) error {
	name := m.Migration.Name + undoSuffix
	_, err := m.config.AnnexHosting.Migrations().Create(ctx, &hostingv1alpha1.Migration{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{hostingv1alpha1.UndoesAnnotation: m.Migration.Name}},
		Spec: hostingv1alpha1.MigrationSpec{
			Group: m.group(), Operation: hostingv1alpha1.MigrationRollback, ExemptWebhooks: m.Migration.Spec.ExemptWebhooks,
		},
	}, metav1.CreateOptions{FieldManager: fieldManager})
	if apierrors.IsAlreadyExists(err) {
		err = m.checkUndo(ctx, name)
	}
	if err != nil {
		return fmt.Errorf("create migration %s: %w", name, err)
	}
	m.undone = true
	return refuse(reasonUndone, "The Migration %q rolls the group back: %s", name, problem)
}

// checkUndo deletes a Migration that undid an earlier one of the same name, and returns an error then.
func (m *moveIn) checkUndo(ctx context.Context, name string) error {
	migrations := m.config.AnnexHosting.Migrations()
	undo, err := migrations.Get(ctx, name, metav1.GetOptions{})
	if err != nil || !undo.CreationTimestamp.Before(&m.Migration.CreationTimestamp) {
		return err
	}
	if err := migrations.Delete(ctx, name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &undo.UID}}); err != nil {
		return err
	}
	return errors.New("an earlier one is being deleted")
}
