// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package migration moves resources to other Stores, as Migrations request. pkg/storage/move copies
// the objects; this package controls its steps, and reports them.
//
// Each step is recorded in the etcds of both Stores, so that any replica continues after a crash. A Migration can be
// undone while the previous Store serves the resource, and only be completed after that. Its finalizer waits for
// either. A finalizer of the HostedResource keeps another one of its name from a Store that has a part of the objects.
package migration

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/controller/framework"
	"github.com/annex-dev/annex/pkg/controller/migration/migrationstatus"
	hostingclient "github.com/annex-dev/annex/pkg/generated/clientset/versioned/typed/hosting/v1alpha1"
	hostinginformers "github.com/annex-dev/annex/pkg/generated/informers/externalversions/hosting/v1alpha1"
	hostinglisters "github.com/annex-dev/annex/pkg/generated/listers/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/storage/move"
)

// ControllerName names the controller in logs, metrics and events.
const ControllerName = "migration"

// A Migration that waits for another one checks that every waitInterval, besides at its end.
const waitInterval = 10 * time.Second

// NewMoverFunc returns what moves a resource between two Stores. config has everything else. A Store that is lost has an
// empty name.
type NewMoverFunc func(from, to string, config move.Config) (*move.Mover, error)

// GroupRun runs a Migration of a group, for one attempt. A *groupmove.Run is one.
type GroupRun interface {
	// Do runs the Migration, wherever it was left. What precedes the switch ends with preparing.
	Do(ctx, preparing context.Context) error
	// Cancel undoes what precedes the switch. After that it returns move.ErrSwitched.
	Cancel(ctx context.Context) error
	// Completed is the message of a completed Migration.
	Completed() string
}

// NewGroupRunFunc returns what runs a Migration of a group. changed receives after changes of the
// Migration.
type NewGroupRunFunc func(status *migrationstatus.Writer, changed <-chan struct{}) GroupRun

// Config holds what the controller depends on.
type Config struct {
	AnnexHosting    hostingclient.HostingV1alpha1Interface
	Migrations      hostinginformers.MigrationInformer
	HostedResources hostinginformers.HostedResourceInformer
	Stores          hostinginformers.StoreInformer
	NewMover        NewMoverFunc
	// NewGroupRun is nil without a main cluster.
	NewGroupRun NewGroupRunFunc
	// Events records events of Migrations.
	Events events.EventRecorder
}

// Controller runs Migrations, each in a worker, from its begin to its end.
type Controller struct {
	*framework.Queue[string]
	config     Config
	migrations hostinglisters.MigrationLister

	mu sync.Mutex
	// running has the Migrations that workers run, by name.
	running map[string]*run
}

// New returns a controller that adds handlers to the informers of config. It does nothing before
// Run.
func New(config Config) (*Controller, error) {
	registerMetrics()
	c := &Controller{config: config, migrations: config.Migrations.Lister(), running: map[string]*run{}}
	c.Queue = framework.NewQueue(framework.QueueConfig[string]{Name: ControllerName, Reconcile: c.reconcile})
	return c, c.Watch(
		framework.Source{Name: "migrations", Informer: config.Migrations.Informer(), Handler: framework.Handler[*hostingv1alpha1.Migration]{
			Added: c.migrationChanged, Deleted: c.migrationChanged,
			Updated: func(before, after *hostingv1alpha1.Migration) {
				if !isOwnUpdate(before, after) {
					c.migrationChanged(after)
				}
			},
		}},
		framework.Source{Name: "hosted resources", Informer: config.HostedResources.Informer(), Handler: framework.Every(c.resourceChanged)},
		framework.Source{Name: "stores", Informer: config.Stores.Informer(), Handler: framework.Handler[*hostingv1alpha1.Store]{Updated: c.storeChanged}},
	)
}

// Run runs Migrations until ctx is done.
func (c *Controller) Run(ctx context.Context, workers int) {
	defer unfinished.Start(c.migrations)()
	c.Queue.Run(ctx, workers)
}

var (
	errDeleted         = errors.New("the Migration was deleted")
	errResourceDeleted = &migrationstatus.Refusal{Reason: reasonBeingDeleted, Message: "The resource was deleted meanwhile"}
)

// isOwnUpdate reports whether an update of a Migration that has not finished only reports progress, as this controller does.
// A Migration that fails, and reports it, would otherwise be tried again at once.
func isOwnUpdate(before, after *hostingv1alpha1.Migration) bool {
	return before.UID == after.UID && before.Generation == after.Generation && !after.Status.Phase.Finished() &&
		(before.DeletionTimestamp == nil) == (after.DeletionTimestamp == nil)
}

// migrationChanged queues a Migration, and those that wait for it.
func (c *Controller) migrationChanged(migration *hostingv1alpha1.Migration) {
	c.Add(migration.Name)
	if migration.Status.Phase.Finished() {
		c.addWhere(func(m *hostingv1alpha1.Migration) bool { return isLike(m, migration) })
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if r := c.running[migration.Name]; r != nil && r.of.UID == migration.UID {
		if migration.DeletionTimestamp != nil {
			r.interrupt(errDeleted)
		}
		r.notify()
	}
}

// resourceChanged ends the Migration of a HostedResource that is being deleted.
func (c *Controller) resourceChanged(hosted *hostingv1alpha1.HostedResource) {
	if hosted.DeletionTimestamp == nil {
		return
	}
	c.addWhere(func(m *hostingv1alpha1.Migration) bool { return m.Spec.Resource == hosted.Name })
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range c.running {
		if r.of.Spec.Resource == hosted.Name {
			r.interrupt(errResourceDeleted)
		}
	}
}

// storeChanged queues the Migrations of a Store that is available again, or is being deleted.
func (c *Controller) storeChanged(before, after *hostingv1alpha1.Store) {
	if isReady(before) != isReady(after) || (before.DeletionTimestamp == nil) != (after.DeletionTimestamp == nil) {
		c.addWhere(func(m *hostingv1alpha1.Migration) bool { return m.Uses(after.Name) })
	}
}

func (c *Controller) addWhere(is func(*hostingv1alpha1.Migration) bool) {
	framework.AddWhere(c, c.config.Migrations.Informer(), is)
}

// reconcile runs a Migration to its end, or to an error.
func (c *Controller) reconcile(ctx context.Context, name string) (framework.Result, error) {
	migration, err := framework.IgnoreNotFound(c.migrations.Get(name))
	if err != nil || migration == nil {
		return framework.Result{}, err
	}
	if migration.Status.Phase.Finished() {
		return c.reconcileFinished(ctx, migration)
	}
	preparing, interrupt := context.WithCancelCause(ctx)
	defer interrupt(nil)
	r := newRun(c.config, migration, interrupt)
	c.mu.Lock()
	c.running[name] = r
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.running, name)
	}()
	if err := r.Read(ctx); err != nil || r.Status.Phase.Finished() || r.Migration.UID != r.of.UID {
		return framework.Result{}, err // the cache will have it
	}
	if waits, err := c.fence(ctx, r); err != nil || waits {
		return framework.Result{RequeueAfter: waitInterval}, err
	}
	if r.Migration.DeletionTimestamp != nil {
		interrupt(errDeleted) // it was deleted before this attempt
	}
	err = r.do(ctx, preparing)
	if cause := context.Cause(preparing); cause != nil && err != nil {
		err = cause
	}
	return framework.Result{}, r.end(ctx, err)
}

// fence makes an attempt the only one of a Migration, or reports that the Migration waits for another one.
func (c *Controller) fence(ctx context.Context, r *run) (waits bool, err error) {
	if r.Migration.Status.StartTime != nil || r.Migration.DeletionTimestamp != nil {
		return false, r.Fence(ctx)
	}
	if waits, err := c.waits(ctx, r); err != nil || waits {
		return waits, err
	}
	if err := r.Fence(ctx); err != nil {
		return false, err
	}
	// Another process, or another worker, may have begun another one since.
	return c.waits(ctx, r)
}

// waits reports whether a Migration that has not begun waits for another one. It then has no holder.
func (c *Controller) waits(ctx context.Context, r *run) (bool, error) {
	// From the server: one that has a holder goes first, which a cache may not have yet.
	all, err := c.config.AnnexHosting.Migrations().List(ctx, metav1.ListOptions{})
	if err != nil {
		return false, fmt.Errorf("list migrations: %w", err)
	}
	other := goesBefore(r.Migration, all.Items)
	if other == nil {
		return false, nil
	}
	if r.Migration.Status.Holder != "" {
		if err := r.Release(ctx); err != nil {
			return true, err
		}
	}
	return true, r.Describe(ctx, migrationstatus.ReasonWaiting, fmt.Sprintf("Waits for the Migration %q of the same resource or group", other.Name))
}

// goesBefore returns the Migration of the same resource or group that goes before one that has not begun, or nil: one that
// has a holder or has begun, or else the oldest.
func goesBefore(migration *hostingv1alpha1.Migration, all []hostingv1alpha1.Migration) *hostingv1alpha1.Migration {
	first := migration
	for i := range all {
		switch other := &all[i]; {
		case other.UID == migration.UID, other.Status.Phase.Finished(), !isLike(other, migration):
		case other.Status.StartTime != nil || other.Status.Holder != "":
			return other
		case migration.Status.Holder != "": // it has begun before all others
		case other.CreationTimestamp.Before(&first.CreationTimestamp),
			other.CreationTimestamp.Equal(&first.CreationTimestamp) && other.Name < first.Name:
			first = other
		}
	}
	if first == migration {
		return nil
	}
	return first
}

// isLike reports whether two Migrations are of the same resource or group.
func isLike(one, other *hostingv1alpha1.Migration) bool {
	return one.Spec.Resource == other.Spec.Resource && one.Spec.Group == other.Spec.Group
}
