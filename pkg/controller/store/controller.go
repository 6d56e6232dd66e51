// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/controller/internal/pace"
	"github.com/annex-dev/annex/pkg/controller/internal/queue"
	hostingclient "github.com/annex-dev/annex/pkg/generated/clientset/versioned/typed/hosting/v1alpha1"
	hostinginformers "github.com/annex-dev/annex/pkg/generated/informers/externalversions/hosting/v1alpha1"
)

// ControllerName names the controller in logs and metrics.
const ControllerName = "store"

// Config holds what the controller depends on.
type Config struct {
	AnnexStores hostingclient.StoreInterface
	Stores      hostinginformers.StoreInformer

	// DefaultEtcd is the etcd behind the Store "default".
	DefaultEtcd Etcd
	// Objects counts the objects in it that annex keeps there. It returns false
	// while that is not known.
	Objects func() (objects int64, known bool)
}

// Controller keeps the status of Stores.
type Controller struct {
	queue  *queue.Queue[string]
	pace   *pace.Pace
	synced cache.DoneChecker
}

// New returns a controller that follows the informer of config and does nothing
// before Run.
func New(config Config) (*Controller, error) {
	c := &Controller{pace: pace.New(minInterval, time.Now)}
	r := &reconciler{
		getStore: config.Stores.Lister().Get,
		updateStatus: func(ctx context.Context, store *hostingv1alpha1.Store) error {
			_, err := config.AnnexStores.UpdateStatus(ctx, store, metav1.UpdateOptions{})
			return err
		},
		observe: config.DefaultEtcd.observe,
		objects: config.Objects,
		pace:    c.pace,
		now:     time.Now,
		trouble: map[string]string{},
	}
	c.queue = queue.New(queue.Config[string]{Name: ControllerName, Reconcile: r.reconcile})

	registration, err := config.Stores.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    c.enqueue,
		UpdateFunc: func(_, obj any) { c.enqueue(obj) },
		DeleteFunc: c.enqueue,
	})
	if err != nil {
		return nil, fmt.Errorf("following stores: %w", err)
	}
	c.synced = registration.HasSyncedChecker()
	return c, nil
}

// Run keeps the status of Stores until ctx is done.
func (c *Controller) Run(ctx context.Context, workers int) {
	c.queue.Run(ctx, workers, c.synced)
}

// UsageChanged is to be called when the usage of a resource changed.
func (c *Controller) UsageChanged(schema.GroupResource) {
	c.queue.AddAfter(hostingv1alpha1.DefaultStoreName, c.pace.Wait(hostingv1alpha1.DefaultStoreName))
}

// AllUsageChanged is to be called when the usage of any resource may have changed.
func (c *Controller) AllUsageChanged() {
	c.UsageChanged(schema.GroupResource{})
}

// enqueue queues a Store, or what is left of it.
func (c *Controller) enqueue(obj any) {
	if name, err := cache.DeletionHandlingMetaNamespaceKeyFunc(obj); err == nil {
		c.queue.Add(name)
	}
}
