// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package groupmove

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/klog/v2"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/controller/migration/migrationstatus"
)

const (
	// observePeriod is how long a moved group must be served without a problem, and undoPeriod how long a
	// problem may last until the group is rolled back.
	observePeriod = 5 * time.Second
	undoPeriod    = 30 * time.Second
	// observeInterval is how often it is checked.
	observeInterval = time.Second
	// undoSuffix is added to the name of a Migration for the one that rolls it back.
	undoSuffix = "-undo"
)

// opened records that annex serves the group, and ends what clients still have of the main cluster.
func (m *moveIn) opened(ctx context.Context, f ...*following) error {
	// Until it is there crdsync would count the main cluster's copy as objects in the way.
	if err := m.markMainCopy(ctx, metav1.Now().UTC().Format(time.RFC3339)); err != nil {
		return err
	}
	now := metav1.Now()
	m.Status.SwitchTime = &now
	if err := m.SetPhase(ctx, hostingv1alpha1.MigrationObserving, "annex serves the group; checks that clients reach it"); err != nil {
		return err
	}
	m.Event(corev1.EventTypeNormal, eventSwitched, "annex serves group %s", m.group())
	return m.closeMain(ctx, f...)
}

// closeMain freezes the main cluster's copy, and ends what follows it and what clients still watch there.
func (m *moveIn) closeMain(ctx context.Context, f ...*following) error {
	if err := m.config.MainCopy.Freeze(ctx, m.group()); err != nil {
		return wrap(err, "freeze the main cluster's copy of group %s", m.group())
	}
	// Nothing more can be written there.
	complete := len(f) > 0
	for _, f := range f {
		for _, err := range f.end() {
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

// settle continues after an attempt that ended since the switch.
func (m *moveIn) settle(ctx context.Context) error {
	if err := m.closeMain(ctx); err != nil {
		return err
	}
	return m.observe(ctx)
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

// observe returns once clients use the group for a while without a problem. If one stays, it makes a
// Migration that rolls the group back, and fails.
func (m *moveIn) observe(ctx context.Context) error {
	var failed failures
	var problem string
	since := time.Now()
	return untilEvery(ctx, observeInterval, func(ctx context.Context) (bool, error) {
		now := countRequests(legacyregistry.DefaultGatherer, m.group())
		found := slices.DeleteFunc([]string{failed.problem(now), m.problem(ctx)}, func(found string) bool { return found == "" })
		if (len(found) == 0) != (problem == "") {
			since = time.Now()
		}
		problem = strings.Join(found, "; ")
		switch {
		case problem == "" && time.Since(since) > observePeriod:
			return true, nil
		case problem == "":
			return false, m.Describe(ctx, migrationstatus.ReasonWaiting, fmt.Sprintf("annex serves the group, with %.0f watches; checks that clients reach it", now.watches))
		case time.Since(since) > undoPeriod:
			return false, m.undo(ctx, problem)
		}
		return false, m.Describe(ctx, migrationstatus.ReasonWaiting, "annex serves the group, with a problem: "+problem)
	})
}

// problem returns what keeps clients from the group, or an empty string.
func (m *moveIn) problem(ctx context.Context) string {
	definitions, err := m.mainDefinitions(ctx)
	if err != nil {
		return err.Error()
	}
	for _, crd := range definitions {
		hosted, err := m.config.AnnexHosting.HostedResources().Get(ctx, crd.Name, metav1.GetOptions{})
		if err != nil {
			return err.Error()
		}
		published := meta.FindStatusCondition(hosted.Status.Conditions, hostingv1alpha1.HostedResourcePublished)
		if published == nil || published.Status != metav1.ConditionTrue {
			message := "the main cluster has not checked yet whether it reaches annex"
			if published != nil {
				message = published.Message
			}
			return fmt.Sprintf("%s: %s", crd.Name, message)
		}
	}
	return cmp.Or(m.routeProblem(ctx, versions(definitions), true), m.openAPIProblem(ctx, definitions))
}

// undo makes a Migration that rolls the group back, and fails this one.
func (m *moveIn) undo(ctx context.Context, problem string) error {
	name := m.Migration.Name + undoSuffix
	_, err := m.config.AnnexHosting.Migrations().Create(ctx, &hostingv1alpha1.Migration{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       hostingv1alpha1.MigrationSpec{Group: m.group(), Operation: hostingv1alpha1.MigrationRollback},
	}, metav1.CreateOptions{FieldManager: fieldManager})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("create migration %s: %w", name, err)
	}
	m.undone = true
	return refuse(reasonUndone, "The Migration %q rolls the group back: %s", name, problem)
}
