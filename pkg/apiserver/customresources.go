// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"fmt"
	"net/http"
	"time"

	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensionsapiserver "k8s.io/apiextensions-apiserver/pkg/apiserver"
	apiextensionsclient "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset/typed/apiextensions/v1"
	definitionlisters "k8s.io/apiextensions-apiserver/pkg/client/listers/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/controller/apiapproval"
	"k8s.io/apiextensions-apiserver/pkg/controller/establish"
	"k8s.io/apiextensions-apiserver/pkg/controller/finalizer"
	"k8s.io/apiextensions-apiserver/pkg/controller/nonstructuralschema"
	"k8s.io/apiextensions-apiserver/pkg/controller/status"
	"k8s.io/apiserver/pkg/endpoints/discovery/aggregated"
	"k8s.io/apiserver/pkg/registry/generic"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"github.com/annex-dev/annex/pkg/apiserver/crd"
	"github.com/annex-dev/annex/pkg/apiserver/crd/openapi"
	"github.com/annex-dev/annex/pkg/apiserver/reads"
	"github.com/annex-dev/annex/pkg/apiserver/writes"
	"github.com/annex-dev/annex/pkg/storage/routing"
	"github.com/annex-dev/annex/pkg/storage/watchcache"
)

// customResources has the parts of the server that serving custom resources needs.
type customResources struct {
	server      *genericapiserver.GenericAPIServer
	config      *genericapiserver.Config
	delegate    http.Handler
	definitions *crd.Informer
	// staticSpec has the schemas of metadata, for managed fields.
	staticSpec map[string]*spec.Schema
	// options configure the storage.
	options generic.RESTOptionsGetter
}

// crdControllerWorkers is the number of workers of upstream's controllers that have several.
const crdControllerWorkers = 5

// serveCustomResources adds the handlers of custom resources and of their discovery, and upstream's
// controllers of CRDs. It returns the storage of their objects.
func (c CompletedConfig) serveCustomResources(with customResources) (finalizer.CRClientGetter, error) {
	outlines := with.definitions.Outlines()
	client, err := apiextensionsclient.NewForConfig(with.server.LoopbackClientConfig)
	if err != nil {
		return nil, fmt.Errorf("create a client of CRDs: %w", err)
	}
	establishing := establish.NewEstablishingController(outlines, client)
	if err := establishAccepted(outlines.Informer(), establishing, c.extra.servers()); err != nil {
		return nil, err
	}
	whole := with.definitions.Whole(nil)
	minRequestTimeout := time.Duration(with.config.MinRequestTimeout) * time.Second
	fronts := newFronts(with.config, minRequestTimeout)
	idle := &idleResources{definitions: outlines.Lister(), isEmpty: c.router.IsEmpty, now: time.Now, used: map[string]*use{}}
	// Documents of discovery never reach the handler.
	resources, err := apiextensionsapiserver.NewCustomResourceDefinitionHandler(
		nil, nil, idle.informer(whole), with.delegate, c.router.Custom(with.options, whole.Lister().Get, fronts.add()), with.config.AdmissionControl,
		establishing, c.extra.ServiceResolver, c.extra.WebhookCredentials, c.extra.servers(), with.server.Authorizer,
		with.config.RequestTimeout, minRequestTimeout, with.staticSpec, with.config.MaxRequestBodyBytes)
	if err != nil {
		return nil, err
	}
	with.server.RegisterDestroyFunc(c.router.DestroyCustom)
	discovery, err := crd.NewDiscovery(outlines.Informer(), with.server.AggregatedDiscoveryGroupManager.WithSource(aggregated.CRDSource))
	if err != nil {
		return nil, err
	}
	handler := with.server.Handler
	served := discovery.Handler(resources, with.delegate)
	handler.NonGoRestfulMux.Handle("/apis", served)
	handler.NonGoRestfulMux.HandlePrefix("/apis/", served)
	if handler.Director, err = openapi.V3Handler(handler.Director, openAPIOf(with.definitions), outlines.Informer()); err != nil {
		return nil, fmt.Errorf("serve OpenAPI v3: %w", err)
	}
	handler.Director = fronts.handler(handler.Director, outlines.Lister())
	handler.Director = idle.Handler(handler.Director)
	if err := with.server.AddPostStartHook("annex-idle-custom-resources", func(ctx genericapiserver.PostStartHookContext) error {
		go idle.Run(ctx)
		return nil
	}); err != nil {
		return nil, err
	}
	return resources, with.addHooks(client, establishing, resources, discovery)
}

// fronts serve requests for custom resources in front of upstream's handler. Those that a feature gate disables are nil.
type fronts struct {
	readers *reads.Registry
	writers *writes.Registry
}

func newFronts(config *genericapiserver.Config, minRequestTimeout time.Duration) (f fronts) {
	if !reads.Enabled() {
		return f
	}
	f.readers = reads.NewRegistry(minRequestTimeout)
	if writes.Enabled() {
		f.writers = writes.NewRegistry(config.AdmissionControl, config.MaxRequestBodyBytes)
	}
	return f
}

// add returns what adds storage to the fronts, or nil if there are none.
func (f fronts) add() routing.AddEndpointFunc {
	switch {
	case f.readers == nil:
		return nil
	case f.writers == nil:
		return f.readers.Add
	}
	return func(added watchcache.Endpoint) func() {
		removeReader, removeWriter := f.readers.Add(added), f.writers.Add(added)
		return func() {
			removeWriter()
			removeReader()
		}
	}
}

func (f fronts) handler(next http.Handler, definitions definitionlisters.CustomResourceDefinitionLister) http.Handler {
	if f.writers != nil {
		next = writes.Handler(next, f.writers, definitions)
	}
	if f.readers != nil {
		next = reads.Handler(next, f.readers, definitions)
	}
	return next
}

// openAPIOf returns the definitions of an informer for OpenAPI documents.
func openAPIOf(crds *crd.Informer) openapi.Definitions {
	return openapi.Definitions{Lister: crds.Outlines().Lister(), WithSchemas: crds.WithSchemas}
}

// addHooks adds the hooks that run the informer of CRDs and their controllers.
func (r customResources) addHooks(
	client apiextensionsclient.CustomResourceDefinitionsGetter, establishing *establish.EstablishingController,
	objects finalizer.CRClientGetter, discovery *crd.Discovery,
) error {
	outlines := r.definitions.Outlines()
	// Requests for unknown paths get 503 instead of 404 until the documents of all CRDs are built. Upstream
	// waits for the informer only, and may return 404 for the discovery of a group in between.
	documented := make(chan struct{})
	if err := r.server.RegisterMuxAndDiscoveryCompleteSignal("CRDInformerHasNotSynced", documented); err != nil {
		return err
	}
	naming := status.NewNamingConditionController(klog.Background(), outlines, client)
	nonStructural := nonstructuralschema.NewConditionController(r.definitions.Whole(mayBeNonStructural), client)
	approval := apiapproval.NewKubernetesAPIApprovalPolicyConformantConditionController(outlines, client)
	finalizing := finalizer.NewCRDFinalizer(outlines, client, objects)
	for name, hook := range map[string]genericapiserver.PostStartHookFunc{
		"start-apiextensions-informers": func(ctx genericapiserver.PostStartHookContext) error {
			go r.definitions.Run(ctx)
			return nil
		},
		"start-apiextensions-controllers": func(ctx genericapiserver.PostStartHookContext) error {
			go naming.RunWithContext(ctx)
			go establishing.RunWithContext(ctx)
			go nonStructural.RunWithContext(crdControllerWorkers, ctx)
			go approval.RunWithContext(crdControllerWorkers, ctx)
			go finalizing.RunWithContext(crdControllerWorkers, ctx)
			go discovery.Run(ctx, documented)
			select {
			case <-ctx.Done():
			case <-documented:
			}
			return nil
		},
	} {
		if err := r.server.AddPostStartHook(name, hook); err != nil {
			return err
		}
	}
	return nil
}

// establishDelay is the delay of upstream's handler before it establishes a definition, if there are
// several servers: all of them have received it by then.
const establishDelay = 5 * time.Second

// establishAccepted establishes definitions whose names are accepted when the server starts. Upstream's
// handler does that for definitions that change, so one whose names were accepted just before a restart
// would wait until the informer resyncs.
func establishAccepted(crds cache.SharedIndexInformer, establishing *establish.EstablishingController, servers int) error {
	var delay time.Duration
	if servers > 1 {
		delay = establishDelay
	}
	_, err := crds.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: func(obj any) {
		crd, ok := obj.(*apiextensionsv1.CustomResourceDefinition)
		if ok && apihelpers.IsCRDConditionTrue(crd, apiextensionsv1.NamesAccepted) && !apihelpers.IsCRDConditionTrue(crd, apiextensionsv1.Established) {
			establishing.QueueCRD(crd.Name, delay)
		}
	}})
	if err != nil {
		return fmt.Errorf("watch definitions: %w", err)
	}
	return nil
}

// mayBeNonStructural reports whether the condition NonStructuralSchema of a CRD may have to be set
// or removed. Validation refuses schemas that are not structural unless unknown fields are preserved.
func mayBeNonStructural(crd *apiextensionsv1.CustomResourceDefinition) bool {
	return crd.Spec.PreserveUnknownFields || apihelpers.FindCRDCondition(crd, apiextensionsv1.NonStructuralSchema) != nil
}
