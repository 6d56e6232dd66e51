// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package garbagecollector deletes objects whose owners are gone, and finishes
// deletions that wait for dependents (foreground) or let them go (orphan).
//
// A graph holds the objects that have owners, are owners, or wait for dependents,
// with nothing but their metadata. Whatever changes there queues UIDs; what is
// done for one is decided by live reads, and written under the condition that the
// object is still the one that was read:
//
//   - An owner that nobody saw is looked for where its dependents say that it is.
//     Only what the server says about exactly that name makes it absent. A kind
//     that is not served makes nothing absent: its objects may come back with it.
//   - An object goes when each of its owners is absent, or is waiting for it to go.
//   - A deletion that waits for dependents, or lets them go, ends when all of
//     them are known. A resource that cannot be followed right now is listed
//     instead, and where that fails, only the deletions wait that it may have
//     dependents of.
//
// So one resource that cannot be read, such as one whose conversion webhook is
// broken, keeps no other from being collected.
package garbagecollector

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/types"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/metadata"

	"github.com/annex-dev/annex/pkg/controller/framework"
	"github.com/annex-dev/annex/pkg/standalone/controller/metadatainformers"
)

const (
	// ControllerName names the controller in logs and metrics.
	ControllerName = "garbage-collector"

	// settlePeriod is how long something that was not seen yet may take to be seen.
	settlePeriod = time.Second

	// recheckPeriod is how often is looked at what nothing may tell about: a
	// deletion that waits, an owner that is there and was not seen.
	recheckPeriod = 5 * time.Second
)

// Config holds what the controller depends on.
type Config struct {
	AnnexMetadata metadata.Interface
	AnnexEvents   corev1client.EventsGetter
	Informers     *metadatainformers.Informers
}

// Controller collects garbage.
type Controller struct {
	queue     *framework.Queue[types.UID]
	informers *metadatainformers.Informers
}

// New returns a controller that follows all objects and does nothing before Run.
func New(config Config) *Controller {
	registerMetrics()
	c := &collector{
		annexMetadata: config.AnnexMetadata,
		annexEvents:   config.AnnexEvents,
		informers:     config.Informers,
		now:           time.Now,
	}
	q := framework.NewQueue(framework.QueueConfig[types.UID]{Name: ControllerName, Reconcile: c.reconcile})
	c.graph = newGraph(config.Informers, q.Add, func(uid types.UID) { q.AddAfter(uid, settlePeriod) })
	config.Informers.AddHandler(c.graph)
	return &Controller{queue: q, informers: config.Informers}
}

// Run collects garbage until ctx is done. It begins when all objects are known, but
// for those of resources that cannot be read.
func (c *Controller) Run(ctx context.Context, workers int) {
	c.queue.Run(ctx, workers, c.informers.Settled())
}
