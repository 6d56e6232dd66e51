// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package writes

import (
	"context"
	"fmt"
	"net/http"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensionsapiserver "k8s.io/apiextensions-apiserver/pkg/apiserver"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/endpoints/handlers"
	"k8s.io/apiserver/pkg/endpoints/handlers/negotiation"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/storage"

	"github.com/annex-dev/annex/pkg/apiserver/front"
	"github.com/annex-dev/annex/pkg/apiserver/writes/plan"
	"github.com/annex-dev/annex/pkg/storage/watchcache"
)

// endpoint serves the writes of a version.
type endpoint struct {
	from    watchcache.Endpoint
	chain   admission.Interface
	recents recents
	mapper  runtime.EquivalentResourceMapper
	schema  *plan.Schema
	// scopes are by subresource. Without any nothing is served.
	scopes map[string]*handlers.RequestScope
}

func newEndpoint(from watchcache.Endpoint, chain admission.Interface, shared *sharedRecents, maxBodyBytes int64) *endpoint {
	e := &endpoint{from: from, chain: chain, recents: shared.ofEndpoint(), mapper: equivalents(from.Definition), scopes: map[string]*handlers.RequestScope{}}
	if !isPlannable(from.Definition, from.Resource.Kind.Version) {
		return e
	}
	scope, err := front.NewScope(from, serializer{front.NewSerializer(apiextensionsapiserver.Scheme)})
	if err == nil {
		e.schema, err = plan.NewSchema(from.Definition, from.Resource.Kind.Version)
	}
	if err != nil {
		utilruntime.HandleError(fmt.Errorf("plan writes of %s: %w", from.Definition.Name, err))
	}
	if err != nil || e.schema == nil {
		return e
	}
	scope.MaxRequestBodyBytes = maxBodyBytes
	// A plan has the managed fields. The handler for creations needs both, and leaves objects without metadata alone.
	scope.Creater, scope.FieldManager = unknownCreater{}, &managedfields.FieldManager{}
	status := *scope
	status.Subresource = "status"
	e.scopes[""], e.scopes["status"] = scope, &status
	return e
}

// isPlannable reports whether objects are stored as a version has them.
func isPlannable(definition *apiextensionsv1.CustomResourceDefinition, version string) bool {
	if c := definition.Spec.Conversion; c != nil && c.Strategy != apiextensionsv1.NoneConverter || definition.DeletionTimestamp != nil {
		return false
	}
	for i := range definition.Spec.Versions {
		if v := &definition.Spec.Versions[i]; v.Name == version {
			return v.Storage
		}
	}
	return false
}

// equivalents returns the versions of a resource, by which webhooks and policies match requests for another version.
func equivalents(definition *apiextensionsv1.CustomResourceDefinition) runtime.EquivalentResourceMapper {
	registry := runtime.NewEquivalentResourceRegistry()
	for i := range definition.Spec.Versions {
		v := &definition.Spec.Versions[i]
		gv := schema.GroupVersion{Group: definition.Spec.Group, Version: v.Name}
		resource, kind := gv.WithResource(definition.Status.AcceptedNames.Plural), gv.WithKind(definition.Status.AcceptedNames.Kind)
		registry.RegisterKindFor(resource, "", kind)
		if v.Subresources != nil && v.Subresources.Status != nil {
			registry.RegisterKindFor(resource, "status", kind)
		}
		if v.Subresources != nil && v.Subresources.Scale != nil {
			registry.RegisterKindFor(resource, "scale", autoscalingv1.SchemeGroupVersion.WithKind("Scale"))
		}
	}
	return registry
}

// The reasons for which upstream's handler serves a write. Package plan has more.
const (
	errUnserved plan.Unsure = "unserved"
	errUnread   plan.Unsure = "unread"
	errMutating plan.Unsure = "mutating"
	errChanged  plan.Unsure = "changed"
)

// serve plans a write, and answers it by upstream's handler. If it returns an error, which is the reason, it has not answered
// the request.
func (e *endpoint) serve(w http.ResponseWriter, req *http.Request, r *front.Request, write plan.Write) error {
	scope := e.scopes[r.Info.Subresource]
	if scope == nil || r.Info.Verb == "create" && r.Definition.DeletionTimestamp != nil {
		return errUnserved
	}
	accepted, ok := negotiation.NegotiateMediaTypeOptions(req.Header.Get("Accept"), scope.Serializer.SupportedMediaTypes(), scope)
	if !ok || accepted.Convert != nil {
		return errUnserved
	}
	if write.Body = readBody(req); write.Body == nil {
		return plan.ErrBody
	}
	a := &attempt{endpoint: e, scope: scope, namespace: r.Info.Namespace, name: r.Info.Name, write: write}
	handler, err := a.handler(request.WithNamespace(req.Context(), r.Info.Namespace), r.Info)
	if err != nil {
		return err
	}
	return a.answer(handler, w, req, r)
}

// handler plans the write, and returns upstream's handler that serves it, with a storage that writes the planned object.
func (a *attempt) handler(ctx context.Context, info *request.RequestInfo) (http.HandlerFunc, error) {
	switch info.Verb {
	case "create":
		c := creater{a}
		return handlers.CreateResource(c, a.scope, nil), c.plan(ctx)
	case "delete":
		d := &deleter{existing: existing{attempt: a}}
		return handlers.DeleteResource(d, true, a.scope, nil), d.plan(ctx)
	}
	u := &updater{existing{attempt: a}}
	if info.Verb == "patch" {
		return handlers.PatchResource(u, a.scope, nil, patchTypes), u.plan(ctx)
	}
	return handlers.UpdateResource(u, a.scope, nil), u.plan(ctx)
}

// current returns an object as the watch cache has it, or, with latest, etcd.
func (e *endpoint) current(ctx context.Context, key string, latest bool) (*watchcache.Object, error) {
	options, object := storage.GetOptions{ResourceVersion: "0"}, &watchcache.Object{}
	if latest {
		options.ResourceVersion = ""
	}
	if err := e.from.Storage.Get(ctx, key, options, object); err != nil {
		return nil, err
	}
	return object, nil
}

// unknownCreater makes objects without metadata.
type unknownCreater struct{}

// New implements runtime.ObjectCreater.
func (unknownCreater) New(schema.GroupVersionKind) (runtime.Object, error) {
	return &runtime.Unknown{}, nil
}
