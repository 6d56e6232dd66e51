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
	"k8s.io/utils/ptr"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
)

const (
	// ownersPeriod is how long owner references are corrected after the last wrong one: clients may still
	// create dependents of objects that they read in annex.
	ownersPeriod = 10 * time.Second
	// ownersInterval is how often all objects of the main cluster are searched for them.
	ownersInterval = 5 * time.Second
)

// clean corrects the owner references in the main cluster, and deletes what annex has of the group.
func (r *rollback) clean(ctx context.Context) error {
	var err error
	if r.copies, err = r.config.MainCopy.Resources(ctx, r.group()); err != nil {
		return err
	}
	for _, of := range r.copies {
		if err := r.config.MainCopy.LoadPairs(ctx, of, r.pairs); err != nil {
			return err
		}
	}
	for _, step := range []func(context.Context) error{
		r.correctOwners, r.releaseGarbageCollector, r.untilRefused, r.untilDiscovered, r.forget, r.correctGone, r.removeMarks,
	} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (r *rollback) releaseGarbageCollector(ctx context.Context) error {
	return r.config.MainCopy.ReleaseGarbageCollector(ctx, r.group())
}

func (r *rollback) untilRefused(ctx context.Context) error {
	return untilRefused(ctx, r.Status.SwitchTime.Time)
}

func (r *rollback) removeMarks(ctx context.Context) error {
	for _, of := range r.copies {
		if err := r.config.MainCopy.RemoveMarks(ctx, of); err != nil {
			return err
		}
	}
	return nil
}

// correctOwners corrects owner references to objects that were created in annex, until none was wrong for
// a while.
func (r *rollback) correctOwners(ctx context.Context) error {
	if len(r.pairs.All()) == 0 {
		return nil
	}
	last := time.Now()
	return untilEvery(ctx, ownersInterval, func(ctx context.Context) (bool, error) {
		corrected, _, err := r.config.MainCopy.RewriteOwners(ctx, r.pairs)
		if corrected > 0 {
			last = time.Now()
		}
		return time.Since(last) >= ownersPeriod, err
	})
}

// correctGone makes the garbage collector look for owners whose deletion it may have missed.
func (r *rollback) correctGone(ctx context.Context) error {
	_, skipped, err := r.config.MainCopy.RewriteGoneOwners(ctx, r.copies, r.pairs)
	if err == nil && len(skipped) > 0 {
		r.Event(corev1.EventTypeWarning, eventOwners, "annex may not list and patch %d resources of the main cluster, such as %s: references in them to owners that were created in annex, or deleted, were not corrected",
			len(skipped), skipped[0].Resource.GroupResource())
	}
	return err
}

// forget removes the labels of the main cluster's definitions, and deletes annex's with their objects.
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
	stored, err := r.config.AnnexStored(main.Name)
	if err != nil {
		return fmt.Errorf("find the objects of %s in annex: %w", main.Name, err)
	}
	hosted, err := r.config.AnnexHosting.HostedResources().Get(ctx, main.Name, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("read hosted resource %s: %w", main.Name, err)
	}
	// It stays closed: requests that are still under way must not get 404.
	if err := stored.Return(ctx, hosted.UID); err != nil {
		return err
	}
	if err := stored.Clear(ctx); err != nil {
		return err
	}
	err = r.config.AnnexDefinitions.Delete(ctx, follower.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: ptr.To(follower.UID)}})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete definition %s in annex: %w", follower.Name, err)
	}
	return nil
}

// isMarked reports whether the main cluster has a copy of the group.
func (r *Run) isMarked(ctx context.Context) (bool, error) {
	definitions, err := r.mainDefinitions(ctx)
	if err != nil {
		return false, err
	}
	for _, crd := range definitions {
		follower, err := r.config.AnnexDefinitions.Get(ctx, crd.Name, metav1.GetOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			return false, fmt.Errorf("read definition %s in annex: %w", crd.Name, err)
		}
		if err == nil && follower.Annotations[hostingv1alpha1.MainCopyAnnotation] != "" {
			return true, nil
		}
	}
	return false, nil
}
