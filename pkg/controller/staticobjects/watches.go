// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package staticobjects

import (
	"context"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/controller/framework"
	"github.com/annex-dev/annex/pkg/staticobjects"
)

// watches watch the mirrors of the resources that have some, and nothing else: an informer
// with a label selector for each.
type watches struct {
	annexMetadata metadata.Interface
	// handle is called for each change of an object with the label. exists is false for one
	// that was deleted.
	handle func(key staticobjects.Key, object metav1.Object, exists bool)

	running sync.WaitGroup
	mu      sync.Mutex
	ctx     context.Context //nolint:containedctx // set by start, ends with the leadership
	open    map[schema.GroupResource]openWatch
}

// openWatch is the watch of a resource, with the mirrors that it has delivered.
type openWatch struct {
	cancel  context.CancelFunc
	mirrors cache.Store
}

// start lets watches run until ctx is done.
func (w *watches) start(ctx context.Context) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ctx, w.open = ctx, map[schema.GroupResource]openWatch{}
}

// ensure watches a resource, unless it is watched.
func (w *watches) ensure(t target) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, isOpen := w.open[t.GroupResource()]; w.ctx == nil || w.ctx.Err() != nil || isOpen {
		return
	}
	ctx, cancel := context.WithCancel(w.ctx)
	informer := metadatainformer.NewFilteredMetadataInformer(w.annexMetadata, t.GroupVersionResource, metav1.NamespaceAll, 0, cache.Indexers{},
		func(options *metav1.ListOptions) { options.LabelSelector = hostingv1alpha1.StaticSourceAnnotation }).Informer()
	changed := func(exists bool) func(*metav1.PartialObjectMetadata) {
		return func(object *metav1.PartialObjectMetadata) {
			w.handle(staticobjects.Key{Group: t.Group, Kind: t.kind, Namespace: object.Namespace, Name: object.Name}, object, exists)
		}
	}
	_, err := informer.AddEventHandler(framework.Handler[*metav1.PartialObjectMetadata]{
		Added:   changed(true),
		Updated: func(_, after *metav1.PartialObjectMetadata) { changed(true)(after) },
		Deleted: changed(false),
	})
	utilruntime.Must(err) // it fails only for an informer that has stopped
	utilruntime.Must(informer.SetWatchErrorHandlerWithContext(handleWatchError))
	w.open[t.GroupResource()] = openWatch{cancel, informer.GetStore()}
	w.running.Go(func() { informer.RunWithContext(ctx) })
}

// has reports whether a watch has delivered a mirror. It then delivers the deletion too, even if it was interrupted.
func (w *watches) has(t target, key staticobjects.Key) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	watch, isOpen := w.open[t.GroupResource()]
	if !isOpen {
		return false
	}
	_, exists, _ := watch.mirrors.GetByKey(cache.NewObjectName(key.Namespace, key.Name).String()) // reading memory does not fail
	return exists
}

// handleWatchError logs an error that has another cause than the deletion of the definition, of
// which the controller is notified too.
func handleWatchError(ctx context.Context, reflector *cache.Reflector, err error) {
	if apierrors.IsMethodNotSupported(err) || apierrors.IsNotFound(err) {
		klog.FromContext(ctx).V(2).Info("Mirrors cannot be watched, their definition is being deleted", "err", err)
		return
	}
	cache.DefaultWatchErrorHandler(ctx, reflector, err)
}

// stop ends the watches of a group. They are opened again when its resources are served:
// until then, an informer would try at growing intervals.
func (w *watches) stop(group string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for resource, watch := range w.open {
		if resource.Group == group {
			watch.cancel()
			delete(w.open, resource)
		}
	}
}

// wait waits for the end of all watches after the context of start is done.
func (w *watches) wait() { w.running.Wait() }
