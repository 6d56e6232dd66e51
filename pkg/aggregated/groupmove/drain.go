// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package groupmove

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
)

const (
	// drainTimeout bounds for how long writes wait until the last changes are copied.
	drainTimeout = 10 * time.Second
	// At most fewPending changes are left when writes begin to wait. Under more churn than can be copied
	// there are always more: pendingTimeout bounds the wait.
	fewPending     = 64
	pendingTimeout = time.Minute
)

var errDrainTimeout = errors.New("the last changes were not copied in time")

// finalSync freezes the group in annex, copies the last writes, and makes the main cluster's copy ready
// to be served. It returns the time at which the freeze began. ctx is the context of the attempt; guarded ends
// earlier if a Syncer fails.
func (r *rollback) finalSync(ctx, guarded context.Context) (began time.Time, err error) {
	for {
		if err := r.untilFewPending(guarded); err != nil {
			return began, err
		}
		began = time.Now()
		err := r.During(guarded, r.freezeAndDrain)
		if err == nil {
			r.workers.end()
			return began, r.close(ctx)
		}
		if !errors.Is(err, errDrainTimeout) {
			return began, err
		}
		if err := r.thaw(ctx); err != nil {
			return began, err
		}
		if err := r.Describe(ctx, hostingv1alpha1.MigrationRetrying, fmt.Sprintf("annex takes writes again, because %v", err)); err != nil {
			return began, err
		}
	}
}

// untilFewPending waits until few changes are missing in the main cluster's copy and each of them can be written.
// Otherwise clients of a frozen group would wait for a webhook that refuses a change.
func (r *rollback) untilFewPending(ctx context.Context) error {
	began := time.Now()
	pending, written := r.progress()
	last := began
	return r.untilReported(ctx, func(context.Context) (string, error) {
		if r.syncProblem() == nil && (pending <= fewPending || time.Since(began) > pendingTimeout) {
			return "", nil
		}
		before := written
		pending, written = r.progress()
		perSecond := float64(written-before) / time.Since(last).Seconds()
		last = time.Now()
		return fmt.Sprintf("%d changes are not copied yet, at %.0f writes per second", pending, perSecond), nil
	})
}

// freezeAndDrain copies all changes while writes wait, for a bounded time.
func (r *rollback) freezeAndDrain(ctx context.Context) error {
	var drains []func(context.Context) error
	for _, of := range r.copied() {
		drains = append(drains, func(ctx context.Context) error { return wrap(of.syncer.Drain(ctx), "%s", of.Name) })
	}
	return drainAll(ctx, func(ctx context.Context) error {
		return r.forEach(func(of *resource) error { return of.exporter.Freeze(ctx) })
	}, drains)
}

func drainAll(ctx context.Context, freeze func(context.Context) error, drains []func(context.Context) error) error {
	bounded, cancel := context.WithTimeoutCause(ctx, drainTimeout, fmt.Errorf("%w: %s", errDrainTimeout, drainTimeout))
	defer cancel()
	if err := freeze(bounded); err != nil {
		return err
	}
	draining, until := errgroup.WithContext(bounded)
	for _, drain := range drains {
		draining.Go(func() error { return drain(until) })
	}
	err := draining.Wait()
	if err != nil && ctx.Err() == nil && bounded.Err() != nil {
		err = fmt.Errorf("%w: %w", context.Cause(bounded), err)
	}
	return err
}

// progress returns how many changes are not copied yet, and how many writes were made.
func (r *rollback) progress() (pending, written int64) {
	for _, of := range r.copied() {
		p := of.syncer.Progress()
		pending, written = pending+p.Pending, written+p.Written
	}
	return pending, written
}

// untilOwnersAllowed delays a rollback that annex began by itself until annex may correct owner references, if
// objects get new UIDs. With outdated references the garbage collector would delete their dependents.
func (r *rollback) untilOwnersAllowed(ctx context.Context) error {
	if r.Migration.Annotations[hostingv1alpha1.UndoesAnnotation] == "" || r.pairs.Len() == 0 {
		return nil
	}
	allowed, err := r.config.MainCopy.MayRewriteOwners(ctx)
	if err != nil || allowed {
		return err
	}
	message := fmt.Sprintf("%d objects were created in annex and get new UIDs. annex may not correct references to them in all resources: what they own would be deleted. "+
		"To grant the rights and go on: kubectl annex rollback %s. To go on without: set spec.confirmed to true", r.pairs.Len(), r.group())
	asked := sync.OnceFunc(func() { r.Event(corev1.EventTypeWarning, eventOwners, "%s", message) })
	return r.untilReported(ctx, func(ctx context.Context) (string, error) {
		if err := r.Read(ctx); err != nil || r.Migration.Spec.Confirmed {
			return "", err
		}
		asked()
		return message, nil
	})
}
