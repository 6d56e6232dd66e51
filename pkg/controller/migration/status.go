// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package migration

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/controller/framework"
	"github.com/annex-dev/annex/pkg/controller/migration/migrationstatus"
	"github.com/annex-dev/annex/pkg/storage/etcd/stores"
	"github.com/annex-dev/annex/pkg/storage/move"
)

// Reasons of the condition Complete, in addition to the phases and the reasons of package move.
const (
	reasonNotFound      = "NotFound"
	reasonNotPlaced     = "NotPlaced"
	reasonNotDefined    = "NotDefined"
	reasonSameStore     = "SameStore"
	reasonStoreNotFound = "StoreNotFound"
	reasonStoreDeleted  = "StoreDeleted"
	reasonDoesNotFit    = "DoesNotFit"
	reasonBeingDeleted  = "BeingDeleted"
	reasonDifferent     = "Different"
	reasonNoSpace       = "NoSpace"
	reasonTooLarge      = "TooLarge"
	reasonNoMainCluster = "NoMainCluster"
)

// Reasons of events, besides the final phases.
const (
	eventStarted  = "Started"
	eventSwitched = "Switched"
)

func refuse(reason, format string, arguments ...any) error {
	return migrationstatus.Refuse(reason, format, arguments...)
}

// isFinal returns the refusal in an error that another attempt would meet again.
func isFinal(err error) (*move.Refusal, bool) {
	if refused, ok := errors.AsType[*move.Refusal](err); ok {
		return refused, true
	}
	if different, ok := errors.AsType[*move.DifferentError](err); ok {
		return &move.Refusal{Reason: reasonDifferent, Message: different.Error()}, true
	}
	unavailable, ok := errors.AsType[*stores.UnavailableError](err)
	switch {
	case errors.Is(err, rpctypes.ErrNoSpace), ok && unavailable.Reason == stores.ReasonNoSpace:
		return &move.Refusal{Reason: reasonNoSpace, Message: fmt.Sprintf("%v. A move writes a few bytes to the Store that it leaves, too: "+
			"delete objects, or raise the quota and run etcdctl alarm disarm; then create the Migration again", err)}, true
	case errors.Is(err, rpctypes.ErrRequestTooLarge):
		return &move.Refusal{Reason: reasonTooLarge, Message: err.Error()}, true
	}
	return nil, false
}

func (r *run) step(ctx context.Context, phase hostingv1alpha1.MigrationPhase, do func(context.Context) error) error {
	return r.Step(ctx, phase, r.message(phase), do)
}

func (r *run) setPhase(ctx context.Context, phase hostingv1alpha1.MigrationPhase) error {
	return r.SetPhase(ctx, phase, r.message(phase))
}

// message describes a phase.
func (r *run) message(phase hostingv1alpha1.MigrationPhase) string {
	from, to := r.Status.FromStoreName, r.Migration.Spec.StoreName
	return map[hostingv1alpha1.MigrationPhase]string{
		hostingv1alpha1.MigrationCopying:   fmt.Sprintf("Copies the objects to Store %q", to),
		hostingv1alpha1.MigrationFollowing: fmt.Sprintf("Copies what is written to Store %q meanwhile", from),
		hostingv1alpha1.MigrationVerifying: "Compares the objects of both Stores",
		hostingv1alpha1.MigrationSwitching: fmt.Sprintf("Requests wait until Store %q serves them", to),
		hostingv1alpha1.MigrationCleaning:  fmt.Sprintf("Store %q serves the resource; its objects in Store %q are being deleted", to, from),
	}[phase]
}

func (r *run) addProgress(status *hostingv1alpha1.MigrationStatus) {
	if p := r.progress.Load(); p != nil {
		status.Objects = max(status.Objects, p.Total)
		status.CopiedObjects, status.CopiedBytes = p.Copied, p.Bytes
		status.Lag = new(p.Lag)
	}
	status.Progress = nil
	switch {
	case status.Phase == hostingv1alpha1.MigrationCopying:
		status.Progress = &hostingv1alpha1.MigrationProgress{Done: status.CopiedObjects, Total: status.Objects}
	case status.Phase == hostingv1alpha1.MigrationVerifying && r.mover != nil:
		status.Progress = &hostingv1alpha1.MigrationProgress{Done: r.mover.Compared(), Total: status.Objects}
	}
}

// end ends an attempt: the Migration is complete, is undone, or will be tried again.
func (r *run) end(ctx context.Context, err error) error {
	switch {
	case err == nil && r.Status.Phase.Finished():
		return nil
	case err == nil:
		return r.complete(ctx)
	case ctx.Err() != nil || errors.Is(err, move.ErrFenced):
		return err // another replica continues
	case errors.Is(err, errDeleted):
		return r.undo(ctx, hostingv1alpha1.MigrationCanceled, string(hostingv1alpha1.MigrationCanceled), "It was deleted before the switch")
	}
	if refused, final := isFinal(err); final {
		return r.undo(ctx, hostingv1alpha1.MigrationFailed, refused.Reason, refused.Message)
	}
	return r.retry(ctx, err, err.Error())
}

// retry reports why the Migration will be tried again.
func (r *run) retry(ctx context.Context, err error, why string) error {
	return errors.Join(err, r.Describe(ctx, hostingv1alpha1.MigrationRetrying, "Continues after an error: "+why))
}

// undo removes the copy. A resource that is switched already is completed instead.
func (r *run) undo(ctx context.Context, phase hostingv1alpha1.MigrationPhase, reason, message string) error {
	var err error
	switch {
	case r.group != nil:
		err = r.group.Cancel(ctx)
	case r.mover != nil:
		err = r.mover.Cancel(ctx)
	case r.Status.StartTime != nil:
		err = errors.New("its Stores are not available")
	}
	switch {
	case errors.Is(err, move.ErrSwitched):
		return r.retry(ctx, err, message)
	case err != nil:
		err = fmt.Errorf("undo migration %s: %w", r.Migration.Name, err)
		return r.retry(ctx, err, err.Error())
	}
	return r.finish(ctx, phase, reason, message)
}

func (r *run) complete(ctx context.Context) error {
	message := fmt.Sprintf("Store %q serves the resource", r.Migration.Spec.StoreName)
	if r.group != nil {
		message = r.group.Completed()
	}
	return r.finish(ctx, hostingv1alpha1.MigrationCompleted, string(hostingv1alpha1.MigrationCompleted), message)
}

func (r *run) finish(ctx context.Context, phase hostingv1alpha1.MigrationPhase, reason, message string) error {
	if r.Status.FromStoreName != "" {
		if err := r.hold(ctx, false); err != nil {
			return err
		}
	}
	if err := r.Finish(ctx, phase, reason, message); err != nil {
		return err
	}
	finished.WithLabelValues(string(phase)).Inc()
	return nil
}

// hold adds the finalizer to the HostedResource, or removes it.
func (r *run) hold(ctx context.Context, held bool) error {
	hostedResources := r.config.AnnexHosting.HostedResources()
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		hosted, err := r.hosted(ctx)
		if err != nil || hosted.Name == "" || slices.Contains(hosted.Finalizers, hostingv1alpha1.MigrationFinalizer) == held {
			return err
		}
		if held {
			hosted.Finalizers = append(hosted.Finalizers, hostingv1alpha1.MigrationFinalizer)
		} else {
			removeFinalizer(hosted)
		}
		_, err = hostedResources.Update(ctx, hosted, metav1.UpdateOptions{})
		return err
	})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("write the finalizer of hosted resource %s: %w", r.Migration.Spec.Resource, err)
	}
	return nil
}

// reconcileFinished deletes a finished Migration whose time has come, and removes the finalizer of a deleted one.
func (c *Controller) reconcileFinished(ctx context.Context, migration *hostingv1alpha1.Migration) (framework.Result, error) {
	ttl, ended := migration.Spec.TTLSecondsAfterFinished, migration.Status.CompletionTime
	if migration.DeletionTimestamp != nil || ttl == nil || ended == nil {
		return framework.Result{}, c.release(ctx, migration)
	}
	if left := time.Until(ended.Add(time.Duration(*ttl) * time.Second)); left > 0 {
		return framework.Result{RequeueAfter: left}, nil
	}
	// The cache may not have a change of the time yet.
	precondition := metav1.Preconditions{UID: &migration.UID, ResourceVersion: &migration.ResourceVersion}
	err := c.config.AnnexHosting.Migrations().Delete(ctx, migration.Name, metav1.DeleteOptions{Preconditions: &precondition})
	if err != nil && !apierrors.IsNotFound(err) {
		return framework.Result{}, fmt.Errorf("delete migration %s after its time: %w", migration.Name, err)
	}
	return framework.Result{}, nil
}

// release lets a finished Migration go that was deleted.
func (c *Controller) release(ctx context.Context, migration *hostingv1alpha1.Migration) error {
	if migration.DeletionTimestamp == nil || !slices.Contains(migration.Finalizers, hostingv1alpha1.MigrationFinalizer) {
		return nil
	}
	updated := migration.DeepCopy()
	removeFinalizer(updated)
	if _, err := c.config.AnnexHosting.Migrations().Update(ctx, updated, metav1.UpdateOptions{}); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("remove the finalizer of migration %s: %w", migration.Name, err)
	}
	return nil
}

func removeFinalizer(from metav1.Object) {
	from.SetFinalizers(slices.DeleteFunc(from.GetFinalizers(), func(name string) bool { return name == hostingv1alpha1.MigrationFinalizer }))
}
