// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package staticobjects writes the mirrors of static objects, as pkg/staticobjects decides, and
// reports the result in StaticSources.
//
// A mirror is created with a create and changed with server-side apply on the UID and the resource
// version that were read, so that an ordinary object is never taken over. A replica that begins to
// lead finds mirrors by their label, in the resources that the StaticSources record.
package staticobjects

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	definitioninformers "k8s.io/apiextensions-apiserver/pkg/client/informers/externalversions/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/controller/framework"
	hostingclient "github.com/annex-dev/annex/pkg/generated/clientset/versioned/typed/hosting/v1alpha1"
	hostinginformers "github.com/annex-dev/annex/pkg/generated/informers/externalversions/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/staticobjects"
)

// ControllerName names the controller in logs, metrics and events.
const ControllerName = "static-objects"

const (
	// maxBackoff is short, because most errors end with a start or a Store.
	maxBackoff = 5 * time.Second

	// settleTimeout bounds how long readiness waits for static objects, so that one that
	// cannot be applied does not keep annex from serving.
	settleTimeout = time.Minute

	// statusDelay collects changes of objects into a write of the StaticSource.
	statusDelay = 200 * time.Millisecond
)

// Config holds what the controller depends on.
type Config struct {
	// Sources are the sources of this replica.
	Sources            *staticobjects.Sources
	AnnexObjects       dynamic.Interface
	AnnexMetadata      metadata.Interface
	AnnexDiscovery     Discovery
	AnnexStaticSources hostingclient.StaticSourceInterface
	StaticSources      hostinginformers.StaticSourceInformer
	Definitions        definitioninformers.CustomResourceDefinitionInformer
	// Refused has the kinds that cannot be static in the mode of this annex, and why.
	Refused map[schema.GroupKind]string
	// Settled is called once every source was read, and every object was applied or cannot be.
	Settled func()
	// Events records events of StaticSources.
	Events events.EventRecorder
}

// item is a key of the queue: an object, or with a source that StaticSource.
type item struct {
	staticobjects.Key
	source string
}

// Controller applies the objects of the sources.
type Controller struct {
	*framework.Queue[item]
	config    Config
	locations map[string]string
	manager   *staticobjects.Manager
	resolver  *resolver
	watches   *watches
	states    states
	settled   atomic.Bool
	now       func() time.Time

	// sources serializes SetSource, so that the last snapshot wins.
	sources sync.Mutex

	// recording guards recorded, and writes of StaticSources.
	recording sync.Mutex
	// recorded has the resources that are recorded in each StaticSource.
	recorded map[string]sets.Set[string]
}

// New returns a controller that adds handlers to the informers of config. It does nothing before
// Run.
func New(config Config) (*Controller, error) {
	registerMetrics()
	c := &Controller{
		config: config, locations: config.Sources.Locations(), manager: staticobjects.NewManager(),
		resolver: newResolver(config.AnnexDiscovery), recorded: map[string]sets.Set[string]{}, now: time.Now,
	}
	c.watches = &watches{annexMetadata: config.AnnexMetadata, handle: c.mirrorChanged}
	c.Queue = framework.NewQueue(framework.QueueConfig[item]{Name: ControllerName, Reconcile: c.reconcile, MaxBackoff: maxBackoff})
	return c, c.Watch(
		framework.Source{Name: "static sources", Informer: config.StaticSources.Informer(), Handler: framework.Every(func(source *hostingv1alpha1.StaticSource) {
			c.Add(item{source: source.Name})
		})},
		framework.Source{Name: "definitions", Informer: config.Definitions.Informer(), Handler: framework.Handler[*apiextensionsv1.CustomResourceDefinition]{
			Added:   c.definitionChanged,
			Updated: func(_, after *apiextensionsv1.CustomResourceDefinition) { c.definitionChanged(after) },
			Deleted: c.definitionDeleted,
		}},
	)
}

// Run works until ctx is done.
func (c *Controller) Run(ctx context.Context, workers int) {
	defer resetMetrics()
	c.watches.start(ctx)
	defer c.watches.wait()
	defer c.config.Sources.AddHandler(c.sourceChanged)()
	for source := range c.config.Sources.Snapshots() {
		c.sourceChanged(source)
	}
	for source := range c.locations {
		c.Add(item{source: source})
	}
	timeout := time.AfterFunc(settleTimeout, func() {
		c.settle(func() {
			klog.FromContext(ctx).Info("Not all static objects are applied yet, becoming ready without them: see kubectl get staticsources", "timeout", settleTimeout)
		})
	})
	defer timeout.Stop()
	c.Queue.Run(ctx, workers)
}

// settle reports that sources and objects are settled, the first time.
func (c *Controller) settle(report func()) {
	if c.settled.CompareAndSwap(false, true) {
		report()
		c.config.Settled()
	}
}

func (c *Controller) reconcile(ctx context.Context, i item) (framework.Result, error) {
	if i.source != "" {
		return framework.Result{}, c.reconcileSource(ctx, i.source)
	}
	return c.reconcileObject(ctx, i.Key)
}

// sourceChanged takes what a source has now, and queues what changes.
func (c *Controller) sourceChanged(source string) {
	c.sources.Lock()
	defer c.sources.Unlock()
	for _, key := range c.manager.SetSource(source, c.config.Sources.Snapshots()[source]) {
		c.AddFresh(item{Key: key})
	}
	c.Add(item{source: source})
}

// mirrorChanged remembers a mirror, and queues it unless it is as it was applied.
func (c *Controller) mirrorChanged(key staticobjects.Key, object metav1.Object, exists bool) {
	mirror, isMirror := staticobjects.MirrorOf(key, object)
	if !exists || !isMirror {
		c.manager.RemoveMirror(key)
		c.Add(item{Key: key})
		return
	}
	c.manager.SetMirror(mirror)
	if static := c.manager.Object(key); static == nil || !mirror.IsOf(static) || c.states.get(key).phase != applied {
		c.Add(item{Key: key})
	}
}

// definitionChanged queues the objects of a group that are not applied: its resources may have
// changed.
func (c *Controller) definitionChanged(definition *apiextensionsv1.CustomResourceDefinition) {
	group := definition.Spec.Group
	c.resolver.forget(group)
	c.addWhere(func(key staticobjects.Key, s state) bool { return key.Group == group && s.phase != applied })
	c.addSources() // they may have mirrors in it
}

// definitionDeleted queues all objects of the group, and drops its mirrors, which are gone
// with the definition.
func (c *Controller) definitionDeleted(definition *apiextensionsv1.CustomResourceDefinition) {
	group := definition.Spec.Group
	c.resolver.forget(group)
	c.watches.stop(group)
	for _, mirror := range c.manager.Mirrors(func(m staticobjects.Mirror) bool { return m.Key.Group == group }) {
		c.manager.RemoveMirror(mirror.Key)
		c.Add(item{Key: mirror.Key})
	}
	c.addWhere(func(key staticobjects.Key, _ state) bool { return key.Group == group })
	c.addSources()
}

// addWhere queues objects for which something has changed.
func (c *Controller) addWhere(is func(staticobjects.Key, state) bool) {
	for key, s := range c.states.snapshot() {
		if is(key, s) {
			c.AddFresh(item{Key: key})
		}
	}
}

func (c *Controller) addSources() {
	for _, source := range hostingv1alpha1.StaticSources() {
		c.AddAfter(item{source: source}, statusDelay)
	}
}
