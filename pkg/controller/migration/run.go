// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package migration

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/controller/framework"
	"github.com/annex-dev/annex/pkg/controller/migration/migrationstatus"
	"github.com/annex-dev/annex/pkg/scheduler"
	"github.com/annex-dev/annex/pkg/storage/etcd/stores"
	"github.com/annex-dev/annex/pkg/storage/move"
)

// burst is the number of objects that a limited copy copies at once.
const burst = 1

// run is one attempt to run a Migration. One goroutine uses it, except of, interrupt, notify and progress.
type run struct {
	*migrationstatus.Writer
	config Config
	// of is the Migration as the attempt began. The Writer has it as it is.
	of *hostingv1alpha1.Migration
	// group runs a Migration of a group; nil for one of a resource.
	group GroupRun
	mover *move.Mover

	// interrupt ends the attempt, with the cause.
	interrupt context.CancelCauseFunc
	// changed receives after changes of the Migration.
	changed  chan struct{}
	progress atomic.Pointer[move.Progress]
}

func newRun(config Config, migration *hostingv1alpha1.Migration, interrupt context.CancelCauseFunc) *run {
	r := &run{config: config, of: migration, interrupt: interrupt, changed: make(chan struct{}, 1)}
	r.Writer = &migrationstatus.Writer{
		Migrations: config.AnnexHosting.Migrations(), Recorder: config.Events, Migration: migration, Progress: r.addProgress,
	}
	if migration.Spec.Group != "" && config.NewGroupRun != nil {
		r.group = config.NewGroupRun(r.Writer, r.changed)
	}
	return r
}

// notify continues a run that waits for a change of the Migration.
func (r *run) notify() {
	select {
	case r.changed <- struct{}{}:
	default: // it has not seen the previous one
	}
}

// do runs the Migration, wherever it was left. What precedes the switch ends with preparing.
func (r *run) do(ctx, preparing context.Context) error {
	if r.Migration.DeletionTimestamp != nil && r.Status.StartTime == nil {
		return errDeleted
	}
	if r.group != nil {
		return r.group.Do(ctx, preparing)
	}
	if r.Migration.Spec.Group != "" {
		return refuse(reasonNoMainCluster, "annex does not run behind a main cluster: there is nothing to move group %s from or to", r.Migration.Spec.Group)
	}
	hosted, err := r.hosted(ctx)
	if err != nil {
		return err
	}
	if r.Status.FromStoreName == "" {
		if err := r.begin(preparing, hosted); err != nil {
			return err
		}
	} else if lost, err := r.lostStore(ctx); err != nil {
		return err
	} else if lost != "" {
		return r.endWithout(ctx, lost, hosted)
	} else if err := r.newMover(r.Status.FromStoreName, r.Migration.Spec.StoreName, hosted); err != nil {
		return err
	}
	state, err := r.mover.State(ctx)
	if err != nil {
		return err
	}
	switch state {
	case move.Absent, move.Copying, move.Following, move.Frozen:
		if err := r.prepare(preparing, hosted, state); err != nil {
			return err
		}
		fallthrough
	case move.Closed:
		if err := r.switchOver(ctx); err != nil {
			return err
		}
		fallthrough
	case move.Switched:
		if err := r.bind(ctx, hosted); err != nil {
			return err
		}
		return r.step(ctx, hostingv1alpha1.MigrationCleaning, r.mover.Clean)
	}
	return nil // cleaned
}

// hosted reads the HostedResource, an empty one if it does not exist.
func (r *run) hosted(ctx context.Context) (*hostingv1alpha1.HostedResource, error) {
	hosted, err := framework.IgnoreNotFound(r.config.AnnexHosting.HostedResources().Get(ctx, r.of.Spec.Resource, metav1.GetOptions{}))
	if err != nil {
		return nil, fmt.Errorf("read hosted resource %s: %w", r.of.Spec.Resource, err)
	}
	return cmp.Or(hosted, &hostingv1alpha1.HostedResource{}), nil
}

// begin checks whether the resource can be moved, and records from where.
func (r *run) begin(ctx context.Context, hosted *hostingv1alpha1.HostedResource) error {
	if err := r.mayBegin(ctx, hosted); err != nil {
		return err
	}
	if err := r.newMover(hosted.Spec.StoreName, r.Migration.Spec.StoreName, hosted); err != nil {
		return err
	}
	if err := r.mover.Check(ctx); err != nil {
		return err
	}
	now := metav1.Now()
	r.Status.FromStoreName, r.Status.StartTime = hosted.Spec.StoreName, &now
	if err := r.setPhase(ctx, hostingv1alpha1.MigrationCopying); err != nil {
		return err
	}
	r.Event(corev1.EventTypeNormal, eventStarted, "Moving %s from Store %s to %s", r.Migration.Spec.Resource, r.Status.FromStoreName, r.Migration.Spec.StoreName)
	return r.hold(ctx, true)
}

// mayBegin returns why the resource cannot be moved.
func (r *run) mayBegin(ctx context.Context, hosted *hostingv1alpha1.HostedResource) error {
	to := r.Migration.Spec.StoreName
	switch {
	case hosted.Name == "":
		return refuse(reasonNotFound, "There is no HostedResource %s", r.Migration.Spec.Resource)
	case hosted.DeletionTimestamp != nil || hosted.Status.Phase == hostingv1alpha1.HostedResourceTerminating:
		return refuse(reasonBeingDeleted, "%s is being deleted", hosted.Name)
	case hosted.Spec.StoreName == "":
		return refuse(reasonNotPlaced, "%s has no Store yet: place it", hosted.Name)
	case hosted.Spec.StoreName == to:
		return refuse(reasonSameStore, "%s is on the Store %q already", hosted.Name, to)
	case hosted.Status.DefinitionUID == "":
		// The name, and so the keys, could be chosen by the creator of the HostedResource.
		return refuse(reasonNotDefined, "%s is not defined: it has no objects to move", hosted.Name)
	}
	cluster, err := scheduler.ReadCluster(ctx, r.config.AnnexHosting)
	if err != nil {
		return err
	}
	for _, store := range cluster.Decide(hosted) {
		if store.Store != to {
			continue
		}
		if !store.Fits() {
			why := fmt.Sprintf("%s cannot be placed on the Store %q: it %s", hosted.Name, to, store.Message())
			if len(store.Reasons) == 1 && isUnreachable(cluster.Stores, to) {
				return errors.New(why) // not final
			}
			return refuse(reasonDoesNotFit, "%s", why)
		}
		return nil
	}
	return refuse(reasonStoreNotFound, "There is no Store %q", to)
}

// isUnreachable reports whether a Store has no answer of its etcd yet, or none at the moment. That ends without a change
// of the Store, and the status may be older than the etcd's last answer.
func isUnreachable(all []hostingv1alpha1.Store, name string) bool {
	i := slices.IndexFunc(all, func(s hostingv1alpha1.Store) bool { return s.Name == name })
	if i < 0 || all[i].DeletionTimestamp != nil {
		return false
	}
	ready := meta.FindStatusCondition(all[i].Status.Conditions, hostingv1alpha1.StoreReady)
	return ready == nil || slices.Contains([]string{stores.ReasonConnecting, stores.ReasonUnclaimed, stores.ReasonUnreachable, stores.ReasonNoQuorum}, ready.Reason)
}

func (r *run) newMover(from, to string, hosted *hostingv1alpha1.HostedResource) error {
	config := move.Config{
		Resource: schema.ParseGroupResource(r.Migration.Spec.Resource), UID: r.Migration.UID, HostedResource: hosted.UID,
		Report: func(progress move.Progress) { r.progress.Store(&progress) },
	}
	if limit := r.Migration.Spec.ObjectsPerSecond; limit > 0 {
		config.Limit = rate.NewLimiter(rate.Limit(limit), burst)
	}
	var err error
	r.mover, err = r.config.NewMover(from, to, config)
	return err
}

// prepare copies the objects, verifies the copy, and follows the source until the resource may be
// switched. One that is frozen already, by an attempt that ended, is not kept waiting.
func (r *run) prepare(ctx context.Context, hosted *hostingv1alpha1.HostedResource, state move.State) error {
	switch {
	case r.Migration.DeletionTimestamp != nil:
		return errDeleted
	case hosted.DeletionTimestamp != nil || hosted.Spec.StoreName != r.Status.FromStoreName:
		return errResourceDeleted
	case state == move.Frozen:
		return nil
	}
	if err := r.hold(ctx, true); err != nil {
		return err
	}
	if state != move.Following {
		if err := r.step(ctx, hostingv1alpha1.MigrationCopying, r.mover.Copy); err != nil {
			return err
		}
	}
	return r.whileFollowing(ctx)
}

// whileFollowing follows the source, and verifies the copy meanwhile, until the resource may be
// switched.
func (r *run) whileFollowing(ctx context.Context) error {
	ctx, stop := context.WithCancelCause(ctx)
	caughtUp, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		if err := r.mover.Follow(ctx, func() { close(caughtUp) }); err != nil {
			stop(err)
		}
	}()
	defer func() {
		stop(nil)
		<-ended
	}()
	err := r.step(ctx, hostingv1alpha1.MigrationFollowing, func(ctx context.Context) error {
		select {
		case <-caughtUp:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	})
	if err == nil {
		err = r.step(ctx, hostingv1alpha1.MigrationVerifying, r.mover.Verify)
	}
	if err == nil {
		err = r.UntilConfirmed(ctx, r.changed)
	}
	if cause := context.Cause(ctx); err != nil && cause != nil {
		return cause // why Follow ended, and everything else with it
	}
	return err
}

// switchOver makes the new Store the one that serves the resource.
func (r *run) switchOver(ctx context.Context) error {
	// The binding is refused in any other phase.
	if err := r.setPhase(ctx, hostingv1alpha1.MigrationSwitching); err != nil {
		return err
	}
	started := time.Now()
	if err := r.mover.Switch(ctx); err != nil {
		return err
	}
	switchSeconds.Observe(time.Since(started).Seconds())
	return nil
}

// bind leads requests to the new Store.
func (r *run) bind(ctx context.Context, hosted *hostingv1alpha1.HostedResource) error {
	if hosted.Spec.StoreName == r.Migration.Spec.StoreName {
		return nil
	}
	_, err := r.config.AnnexHosting.HostedResources().Bind(ctx, hosted.Name, &hostingv1alpha1.HostedResourceBinding{
		ObjectMeta: metav1.ObjectMeta{Name: hosted.Name, UID: hosted.UID},
		StoreName:  r.Migration.Spec.StoreName, MigrationUID: r.Migration.UID,
	}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("place %s on Store %s: %w", hosted.Name, r.Migration.Spec.StoreName, err)
	}
	r.Event(corev1.EventTypeNormal, eventSwitched, "Store %s serves %s", r.Migration.Spec.StoreName, hosted.Name)
	return nil
}

// lostStore returns the Store of the Migration that was deleted after its etcd was lost, if any.
func (r *run) lostStore(ctx context.Context) (string, error) {
	for _, name := range []string{r.Migration.Spec.StoreName, r.Status.FromStoreName} {
		store, err := framework.IgnoreNotFound(r.config.AnnexHosting.Stores().Get(ctx, name, metav1.GetOptions{}))
		if err != nil {
			return "", fmt.Errorf("read store %s: %w", name, err)
		}
		if store == nil || store.DeletionTimestamp != nil && !isReady(store) {
			return name, nil
		}
	}
	return "", nil
}

func isReady(store *hostingv1alpha1.Store) bool {
	return meta.IsStatusConditionTrue(store.Status.Conditions, hostingv1alpha1.StoreReady)
}

// endWithout ends the Migration without a Store that is lost. The Store that serves the resource goes
// on to do so.
func (r *run) endWithout(ctx context.Context, lost string, hosted *hostingv1alpha1.HostedResource) error {
	from, to := r.Status.FromStoreName, r.Migration.Spec.StoreName
	switch {
	case lost == to && hosted.Spec.StoreName != to:
		// In this phase the binding to the lost Store is refused.
		r.Status.Phase = hostingv1alpha1.MigrationCopying
		message := fmt.Sprintf("The Store %q was deleted", to)
		if err := r.Describe(ctx, reasonStoreDeleted, message); err != nil {
			return err
		}
		hosted, err := r.hosted(ctx)
		if err != nil {
			return err
		}
		if hosted.Spec.StoreName == to {
			return fmt.Errorf("%s was placed on Store %s, which was deleted meanwhile", hosted.Name, to)
		}
		if err := r.newMover(from, "", hosted); err != nil {
			return err
		}
		if err := r.mover.Release(ctx); err != nil {
			return err
		}
		return r.finish(ctx, hostingv1alpha1.MigrationFailed, reasonStoreDeleted, message)
	case lost == from && hosted.Spec.StoreName == to:
		if err := r.newMover("", to, hosted); err != nil {
			return err
		}
		return r.mover.Clean(ctx)
	}
	return fmt.Errorf("the Store %q, which has the objects, was deleted", lost)
}
