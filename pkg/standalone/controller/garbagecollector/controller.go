// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package garbagecollector deletes objects whose owners are gone, and finishes
// deletions that wait for dependents (foreground) or let them go (orphan).
//
// A graph holds the metadata of objects that have owners, are owners, or wait for
// dependents. Its changes queue UIDs. A reconcile decides by live reads, and its writes
// have preconditions:
//
//   - An owner that was not observed is read where the reference of its dependent points.
//     Only a "not found" for exactly that name makes it absent. A kind that is not served
//     makes no owner absent: its objects may return with it.
//   - An object is deleted when each of its owners is absent or waits for its dependents.
//   - A foreground deletion or an orphaning ends when all dependents are known. A resource
//     that the informers cannot watch is listed instead. Where that fails, only deletions
//     that may have dependents of that resource wait.
//
// So a resource that cannot be read, for example because of its conversion webhook, does
// not stop the collection of others.
package garbagecollector

import (
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

	// settlePeriod is the time that a new object gets to be observed.
	settlePeriod = time.Second

	// recheckPeriod is the interval of checks that no event triggers: of a deletion that
	// waits, or of an owner that exists and was not observed.
	recheckPeriod = 5 * time.Second
)

// Config holds what the controller depends on.
type Config struct {
	AnnexMetadata metadata.Interface
	AnnexEvents   corev1client.EventsGetter
	Informers     *metadatainformers.Informers
}

// New returns a controller that collects garbage. It handles events of all objects, and
// starts once all objects are known, except objects of resources that cannot be read.
func New(config Config) *framework.Queue[types.UID] {
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
	q.WaitFor(config.Informers.Settled())
	return q
}
