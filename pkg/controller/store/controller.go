// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package store writes the status of Stores: whether the etcd accepts reads and writes,
// its size, and what annex stores in it.
//
// The status of a Store may be stored in its own etcd. It is written only for relevant
// changes, and the growth of the database by such a write is none.
package store

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/tools/events"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/controller/framework"
	hostingclient "github.com/annex-dev/annex/pkg/generated/clientset/versioned/typed/hosting/v1alpha1"
	hostinginformers "github.com/annex-dev/annex/pkg/generated/informers/externalversions/hosting/v1alpha1"
	hostinglisters "github.com/annex-dev/annex/pkg/generated/listers/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/storage/etcd/stores"
)

// ControllerName names the controller in logs, metrics and events.
const ControllerName = "store"

// Connection is annex's connection to a Store; a *stores.Store is one.
type Connection interface {
	// Snapshot is the result of the last probe of the etcd.
	Snapshot() *stores.Snapshot
	// Claim writes the Store's mark to the prefix, with adopt also over an existing mark.
	Claim(ctx context.Context, uid types.UID, adopt bool) (stores.Claim, error)
	// Release removes the mark.
	Release(ctx context.Context, uid types.UID) error
}

// Config holds what the controller depends on.
type Config struct {
	AnnexStores          hostingclient.StoreInterface
	AnnexHostedResources hostingclient.HostedResourceInterface
	AnnexMigrations      hostingclient.MigrationInterface
	Stores               hostinginformers.StoreInformer
	HostedResources      hostinginformers.HostedResourceInformer

	// Connection returns the connection of a Store, and an error if the Store does not
	// exist.
	Connection func(name string) (Connection, error)
	// AddListener registers a listener for changes of connections until remove is called.
	AddListener func(listener func(store string)) (remove func())
	// Objects counts annex's objects in a Store. It returns false while the number is
	// unknown.
	Objects func(store string) (objects int64, known bool)
	// Events records events of Stores.
	Events events.EventRecorder
}

// Controller writes the status of Stores.
type Controller struct {
	*framework.Queue[string]
	throttle    *framework.Throttle
	addListener func(func(string)) func()
	stores      hostinglisters.StoreLister
}

// New returns a controller that adds handlers to the informers of config. It does nothing
// before Run.
func New(config Config) (*Controller, error) {
	registerMetrics()
	c := &Controller{throttle: framework.NewThrottle(minInterval, time.Now), addListener: config.AddListener, stores: config.Stores.Lister()}
	hosted := config.HostedResources.Lister()
	r := &reconciler{
		getStore:     c.stores.Get,
		updateStatus: config.AnnexStores.UpdateStatus,
		update:       config.AnnexStores.Update,
		connection:   config.Connection,
		objects:      config.Objects,
		placed: func(store string) int32 {
			all, _ := hosted.List(labels.Everything()) // reading memory does not fail
			return countOn(store, all)
		},
		livePlaced: func(ctx context.Context, store string) (int32, error) {
			placed := fields.OneTermEqualSelector(hostingv1alpha1.HostedResourceStoreNameField, store)
			all, err := config.AnnexHostedResources.List(ctx, metav1.ListOptions{FieldSelector: placed.String()})
			if err != nil {
				return 0, fmt.Errorf("list what is placed on store %s: %w", store, err)
			}
			migrations, err := config.AnnexMigrations.List(ctx, metav1.ListOptions{})
			if err != nil {
				return 0, fmt.Errorf("list the migrations from and to store %s: %w", store, err)
			}
			held := sets.New[string]()
			for _, hosted := range all.Items {
				held.Insert(hosted.Name)
			}
			for _, migration := range migrations.Items {
				if migration.Uses(store) {
					held.Insert(migration.Spec.Resource)
				}
			}
			return int32(held.Len()), nil
		},
		liveOwner: func(ctx context.Context, uid types.UID) (string, error) {
			all, err := config.AnnexStores.List(ctx, metav1.ListOptions{})
			if err != nil {
				return "", fmt.Errorf("list stores: %w", err)
			}
			for _, store := range all.Items {
				if store.UID == uid {
					return store.Name, nil
				}
			}
			return "", nil
		},
		events:   config.Events,
		throttle: c.throttle,
		now:      time.Now,
		trouble:  map[string]string{},
		noted:    map[string]time.Time{},
	}
	c.Queue = framework.NewQueue(framework.QueueConfig[string]{Name: ControllerName, Reconcile: r.reconcile})
	return c, c.addEventHandlers(config)
}

func countOn(store string, hosted []*hostingv1alpha1.HostedResource) int32 {
	count := int32(0)
	for _, resource := range hosted {
		if resource.Spec.StoreName == store {
			count++
		}
	}
	return count
}

func (c *Controller) addEventHandlers(config Config) error {
	placed := framework.Every(func(hosted *hostingv1alpha1.HostedResource) { c.enqueueLater(hosted.Spec.StoreName) })
	placed.Updated = func(before, after *hostingv1alpha1.HostedResource) {
		// Most changes are of the status, which is irrelevant to Stores.
		if before.Spec.StoreName != after.Spec.StoreName {
			c.enqueueLater(before.Spec.StoreName)
			c.enqueueLater(after.Spec.StoreName)
		}
	}
	return c.Watch(
		framework.Source{Name: "stores", Informer: config.Stores.Informer(), Handler: framework.Every(func(store *hostingv1alpha1.Store) { c.Add(store.Name) })},
		framework.Source{Name: "hosted resources", Informer: config.HostedResources.Informer(), Handler: placed},
	)
}

// Run writes the status of Stores until ctx is done.
func (c *Controller) Run(ctx context.Context, workers int) {
	remove := c.addListener(c.Add)
	defer remove()
	defer backups.Start(c.stores)()
	c.Queue.Run(ctx, workers)
}

// StoreUsageChanged implements usage.StoreHandler.
func (c *Controller) StoreUsageChanged(store string) { c.enqueueLater(store) }

// enqueueLater queues a Store, if any, at the end of its interval.
func (c *Controller) enqueueLater(name string) {
	if name != "" {
		c.AddAfter(name, c.throttle.Delay(name))
	}
}
