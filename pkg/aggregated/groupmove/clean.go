// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package groupmove

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// ownersPeriod is the time for which owner references are corrected after the last wrong one: clients may still
	// create dependents of objects that they read in annex.
	ownersPeriod = 10 * time.Second
	// ownersInterval is the time between two searches of all objects of the main cluster.
	ownersInterval = 5 * time.Second
	// ownersTimeout bounds all of it.
	ownersTimeout = 5 * time.Minute
)

// clean corrects the owner references in the main cluster, and deletes what annex has of the group. The pairs of
// UIDs go with the last of it.
func (r *rollback) clean(ctx context.Context) error {
	main := r.config.MainCopy
	for _, step := range []func(context.Context) error{
		r.exempt, r.correctOwners,
		func(ctx context.Context) error { return main.ReleaseGarbageCollector(ctx, r.group()) },
		func(ctx context.Context) error { return untilRefused(ctx, r.Status.SwitchTime.Time) },
		func(ctx context.Context) error { return untilDiscovered(ctx, r.undiscovered, r.renew, r.Wait) },
		r.correctGone,
		func(ctx context.Context) error { return main.EndExemption(ctx, r.group()) },
		r.forget,
	} {
		if err := step(ctx); err != nil {
			return r.explain(err)
		}
	}
	return nil
}

// correctOwners corrects owner references to objects that were created in annex, until none was wrong for
// a while. A client that writes wrong ones all the time does not keep it from ending.
func (r *rollback) correctOwners(ctx context.Context) error {
	if r.pairs.Len() == 0 {
		return nil
	}
	began := time.Now()
	last := began
	return untilEvery(ctx, ownersInterval, func(ctx context.Context) (bool, error) {
		corrected, _, err := r.config.MainCopy.RewriteOwners(ctx, r.pairs)
		if err != nil {
			return false, err
		}
		if corrected > 0 {
			last = time.Now()
		}
		if time.Since(began) > ownersTimeout && time.Since(last) < ownersPeriod {
			r.Event(corev1.EventTypeWarning, eventOwners, "Clients still write references to owners by their UIDs in annex: %d in the last %s. They are no longer corrected",
				corrected, ownersInterval)
			return true, nil
		}
		return time.Since(last) >= ownersPeriod, nil
	})
}

// correctGone makes the garbage collector look for owners whose deletion it may have missed.
func (r *rollback) correctGone(ctx context.Context) error {
	_, skipped, err := r.config.MainCopy.RewriteOwners(ctx, r.pairs, r.copies...)
	if err == nil && len(skipped) > 0 {
		r.Event(corev1.EventTypeWarning, eventOwners, "annex may not list and patch %d resources of the main cluster, such as %s: references in them to owners that were created in annex, or deleted, were not corrected",
			len(skipped), skipped[0].GroupResource())
	}
	return err
}

// forget removes the labels of the main cluster's definitions, and deletes annex's definitions with their objects.
func (r *rollback) forget(ctx context.Context) error {
	definitions, err := r.mainDefinitions(ctx)
	if err != nil {
		return err
	}
	if err := r.label(ctx, definitions, ""); err != nil {
		return err
	}
	for _, crd := range definitions {
		if err := r.forgetDefinition(ctx, crd); err != nil {
			return err
		}
	}
	return nil
}

// forgetDefinition deletes annex's definition. Its objects are deleted before, without running their
// finalizers: the main cluster has them.
func (r *rollback) forgetDefinition(ctx context.Context, main *definition) error {
	follower, err := r.config.AnnexDefinitions.Get(ctx, main.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read definition %s in annex: %w", main.Name, err)
	}
	of := r.named(main.Name)
	if of == nil {
		return fmt.Errorf("delete %s in annex: it is not ready", main.Name)
	}
	// It stays closed: requests that are still under way must not get 404.
	if err := of.exporter.End(ctx); err != nil {
		return err
	}
	err = r.config.AnnexDefinitions.Delete(ctx, follower.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: new(follower.UID)}})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete definition %s in annex: %w", follower.Name, err)
	}
	return nil
}
