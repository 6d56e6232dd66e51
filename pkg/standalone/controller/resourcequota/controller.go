// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package resourcequota keeps status.used of ResourceQuotas correct.
//
// Admission charges a quota before an object is written, by raising status.used. So some
// charged objects are not observed yet, and the observed count is too low: with it,
// concurrent requests could exceed the limit. The controller therefore subtracts observed
// deletions, and lowers status.used to its count only once every charge is old enough:
// the object exists, or its creation failed. It raises status.used immediately.
//
// The count comes from events of metadata; the controller lists nothing.
package resourcequota

import (
	"context"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/annex-dev/annex/pkg/controller/framework"
	"github.com/annex-dev/annex/pkg/standalone/controller/metadatainformers"
)

const (
	// ControllerName names the controller in logs and metrics.
	ControllerName = "resourcequota"

	// interval is the minimum time between two reconciles of one quota: a reconcile reads
	// the quota, and its write may delay a create.
	interval = 100 * time.Millisecond

	// resync is the interval of reconciles without an event.
	resync = 5 * time.Minute
)

// Metadata sends events of all objects. *metadatainformers.Informers does.
type Metadata interface {
	AddHandler(handler metadatainformers.Handler)
	State(resource schema.GroupResource) (metadatainformers.State, bool)
	Settled() cache.DoneChecker
}

// Config holds what the controller depends on.
type Config struct {
	AnnexQuotas corev1client.ResourceQuotasGetter
	// Quotas must be indexed by namespace.
	Quotas   cache.SharedIndexInformer
	Metadata Metadata
}

// Controller maintains status.used of quotas.
type Controller struct {
	*framework.Queue[types.NamespacedName]
	quotas cache.Indexer
}

// New returns a controller that adds a handler to the informer of config. It does nothing
// before Run.
func New(config Config) (*Controller, error) {
	c := &Controller{quotas: config.Quotas.GetIndexer()}
	objects := &ledger{
		counted: func(namespace string) bool { return len(c.inNamespace(namespace)) > 0 },
		changed: func(p place) { c.enqueueThose(c.inNamespace(p.namespace), p.resource) },
		synced:  func(resource schema.GroupResource) { c.enqueueThose(c.quotas.List(), resource) },
		tallies: map[place]tally{},
	}
	r := &reconciler{
		getQuota: func(ctx context.Context, key types.NamespacedName) (*corev1.ResourceQuota, error) {
			return config.AnnexQuotas.ResourceQuotas(key.Namespace).Get(ctx, key.Name, metav1.GetOptions{})
		},
		updateStatus: func(ctx context.Context, quota *corev1.ResourceQuota) error {
			_, err := config.AnnexQuotas.ResourceQuotas(quota.Namespace).UpdateStatus(ctx, quota, metav1.UpdateOptions{})
			return err
		},
		state:    config.Metadata.State,
		tally:    objects.at,
		now:      time.Now,
		throttle: framework.NewThrottle(interval, time.Now),
		quotas:   map[types.NamespacedName]*metered{},
	}
	c.Queue = framework.NewQueue(framework.QueueConfig[types.NamespacedName]{Name: ControllerName, Reconcile: r.reconcile})
	c.WaitFor(config.Metadata.Settled())
	config.Metadata.AddHandler(objects)
	return c, c.Watch(framework.Source{Name: "ResourceQuotas", Informer: config.Quotas, Handler: framework.Every(c.enqueue)})
}

// enqueue queues a quota that changed or was deleted.
func (c *Controller) enqueue(quota *corev1.ResourceQuota) {
	c.Add(types.NamespacedName{Namespace: quota.Namespace, Name: quota.Name})
}

// inNamespace returns the quotas in a namespace.
func (c *Controller) inNamespace(namespace string) []any {
	// It fails only without the index, which informers of namespaced objects have.
	quotas, _ := c.quotas.ByIndex(cache.NamespaceIndex, namespace)
	return quotas
}

// enqueueThose queues the quotas that count a resource.
func (c *Controller) enqueueThose(quotas []any, resource schema.GroupResource) {
	for _, obj := range quotas {
		if quota, ok := obj.(*corev1.ResourceQuota); ok && counts(quota, resource) {
			c.enqueue(quota)
		}
	}
}

const countPrefix = "count/"

// countedResource returns the resource of a limit on a number of objects. It returns
// false for other limits, and for events, which admission does not charge.
func countedResource(name corev1.ResourceName) (schema.GroupResource, bool) {
	switch name {
	case corev1.ResourceConfigMaps, corev1.ResourceSecrets, corev1.ResourceQuotas, corev1.ResourcePods,
		corev1.ResourceServices, corev1.ResourceReplicationControllers, corev1.ResourcePersistentVolumeClaims:
		return schema.GroupResource{Resource: string(name)}, true
	}
	counted, ok := strings.CutPrefix(string(name), countPrefix)
	if !ok {
		return schema.GroupResource{}, false
	}
	resource := schema.ParseGroupResource(counted)
	return resource, resource.Resource != "events" || (resource.Group != "" && resource.Group != "events.k8s.io")
}

// counts reports whether a quota counts objects of a resource.
func counts(quota *corev1.ResourceQuota, resource schema.GroupResource) bool {
	for name := range quota.Spec.Hard {
		if counted, ok := countedResource(name); ok && counted == resource {
			return true
		}
	}
	return false
}

// isScoped reports whether a quota has scopes, which select only pods and volume claims.
// Annex has neither.
func isScoped(quota *corev1.ResourceQuota) bool {
	return len(quota.Spec.Scopes) > 0 || quota.Spec.ScopeSelector != nil
}
