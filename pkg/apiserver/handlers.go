// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/endpoints/request"
	genericapiserver "k8s.io/apiserver/pkg/server"

	"github.com/annex-dev/annex/pkg/apiserver/crd"
	"github.com/annex-dev/annex/pkg/apiserver/crd/openapi"
	"github.com/annex-dev/annex/pkg/apiserver/requestbody"
	"github.com/annex-dev/annex/pkg/stack"
	"github.com/annex-dev/annex/pkg/storage/layer/objectsize"
)

// The path of a request, from the socket to the REST storage:
//
//  1. pkg/serving: the HTTP server. It terminates TLS and moves clients to other replicas
//     during shutdown (pkg/cmd/server/drain.go puts it in place of upstream's).
//  2. ExtraConfig.WrapAll, behind a main cluster: pkg/aggregated/maincluster returns 503
//     instead of 401 if the main cluster is unavailable, and sets the header that
//     names annex's Service; routing.WithRepeats lets clients repeat writes of a group that
//     was returned to the main cluster.
//  3. requestbody.WithBody: makes the body readable once, at step 5 or 6.
//  4. genericapiserver.DefaultBuildHandlerChain, outer part: panic recovery, timeouts,
//     authentication, audit, impersonation.
//  5. DefaultBuildHandlerChain, inner part: requestbody.FlowControl reads the body within
//     limits of time, size and memory, then upstream's flow control waits for a seat;
//     then authorization.
//  6. requestbody.WithBodyLimits: rejects requests whose body exceeded a limit, or would take upstream
//     much more work than its size; reads the body if flow control is off or exempts the request.
//  7. ExtraConfig.WrapAPIs, behind a main cluster: pkg/aggregated/discovery filters
//     OpenAPI and discovery for the main cluster's aggregator. It needs the user.
//  8. refuseRequests: returns 404 for resources whose name has a dot, 400 for long selectors. Then
//     the aggregator, core, extensions, not found (chain.go). crd/openapi adds custom resources to
//     the aggregator's OpenAPI v2 document.
//  9. Upstream's endpoint handlers: decoding, admission (pkg/admission), validation, and
//     the REST storage (pkg/registry, or the custom resource handler). pkg/apiserver/reads answers
//     reads of custom resources in front of that handler, which decodes what it reads, and
//     pkg/apiserver/writes updates; pkg/apiserver/front recognizes the requests and finds their storage.
//
// Below that, pkg/storage/routing/stack.go continues from the storage to etcd.
func (c CompletedConfig) buildHandlerChain(crds *crd.Informer) func(http.Handler, *genericapiserver.Config) http.Handler {
	limits := c.extra.BodyLimits
	limits.Lists = listsOf(crds)
	return func(handler http.Handler, generic *genericapiserver.Config) http.Handler {
		handler = openapi.V2Handler(handler, openAPIOf(crds)) // 8
		handler = refuseRequests(handler, generic.Serializer) // 8
		if wrap := c.extra.WrapAPIs; wrap != nil {
			handler = wrap(handler, crds.Outlines()) // 7
		}
		handler = requestbody.WithBodyLimits(handler, generic.Serializer)     // 6
		handler = genericapiserver.DefaultBuildHandlerChain(handler, generic) // 4, 5
		handler = requestbody.WithBody(handler, limits)                       // 3
		if wrap := c.extra.WrapAll; wrap != nil {
			handler = wrap(handler, generic.Serializer) // 2
		}
		return handler
	}
}

// limitBodies reads bodies before a request waits for a seat.
func (c *Config) limitBodies() {
	c.Extra.BodyLimits.Authorizer = c.Generic.Authorization.Authorizer
	if c.Generic.FlowControl != nil {
		c.Generic.FlowControl = requestbody.FlowControl(c.Generic.FlowControl)
	}
}

// growStacks makes room for the filters that follow the timeout, which continues in another goroutine. Authentication is
// the first of them that calls annex.
func (c *Config) growStacks() {
	authentication := c.Generic.Authentication.Authenticator
	c.Generic.Authentication.Authenticator = authenticator.RequestFunc(func(req *http.Request) (*authenticator.Response, bool, error) {
		stack.Grow()
		return authentication.AuthenticateRequest(req)
	})
}

// listsOf returns the lists of type set or map of the custom resource that a request is for.
func listsOf(crds *crd.Informer) func(*request.RequestInfo) (objectsize.AssociativeLists, error) {
	return func(info *request.RequestInfo) (objectsize.AssociativeLists, error) {
		definition, err := crds.Whole(nil).Lister().Get(info.Resource + "." + info.APIGroup)
		if err != nil && !apierrors.IsNotFound(err) {
			return nil, err
		}
		return objectsize.NewAssociativeLists(definition), nil
	}
}
