// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package requestbody receives the bodies of requests. A body has to arrive without
// long pauses, is limited in size, and reserves a part of a budget if it is large. It
// is received after authentication and before the request waits for a seat, so that
// slow clients do not occupy seats.
package requestbody

import (
	"context"
	"fmt"
	"mime"
	"net/http"
	"strings"
	"time"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/filters"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/endpoints/responsewriter"
	utilflowcontrol "k8s.io/apiserver/pkg/util/flowcontrol"
	fairqueuing "k8s.io/apiserver/pkg/util/flowcontrol/fairqueuing"
	fcrequest "k8s.io/apiserver/pkg/util/flowcontrol/request"

	"github.com/annex-dev/annex/pkg/storage/layer/objectsize"
)

// smallBytes is upstream's limit for a request, for compiled-in kinds.
const smallBytes = 3 << 20

// BodyLimits limits the bodies of requests.
type BodyLimits struct {
	// MaxBodyBytes is the size of the largest body.
	MaxBodyBytes int64
	// Small reports whether requests for a group are small.
	Small func(group string) bool
	// Budget is shared by large bodies.
	Budget *objectsize.Budget
	// Timeout is the timeout of a request.
	Timeout time.Duration
	// Lists returns the lists of type set or map of a request's resource.
	Lists func(*request.RequestInfo) (objectsize.AssociativeLists, error)
	// Authorizer authorizes requests before a large body is received. It may be nil.
	Authorizer authorizer.Authorizer
}

// limit limits the body of one request.
type limit struct {
	bytes int64
	flag  string
}

func (l BodyLimits) of(info *request.RequestInfo) limit {
	if !info.IsResourceRequest || l.Small(info.APIGroup) {
		return limit{bytes: min(smallBytes, l.MaxBodyBytes)}
	}
	return limit{bytes: l.MaxBodyBytes, flag: " (--max-object-bytes and a little more)"}
}

func (l limit) exceeded(size string) error {
	return apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("the request has %s bytes, the limit is %d%s", size, l.bytes, l.flag))
}

func (l limit) values() int64 { return objectsize.MaxValues(l.bytes) }

func (l limit) tooManyValues() error {
	return apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("the request has more than %d values, among them objects and lists, the limit is one for each %d bytes of the largest request%s",
		l.values(), l.bytes/l.values(), l.flag))
}

// WithBody lets FlowControl and WithBodyLimits receive the bodies of requests. It wraps
// all other filters.
func WithBody(handler http.Handler, limits BodyLimits) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.ContentLength == 0 {
			handler.ServeHTTP(w, req)
			return
		}
		ctx, cancel := context.WithTimeout(req.Context(), limits.Timeout)
		defer cancel()
		contentType := req.Header.Get("Content-Type")
		isYAML := strings.Contains(contentType, "yaml")
		b := &body{
			Closer: req.Body, connection: req.Body, control: http.NewResponseController(w),
			limits: limits, ctx: ctx, length: req.ContentLength,
			isText: isYAML || contentType == "" || strings.Contains(contentType, "json"), values: objectsize.Values{IsJSON: !isYAML},
		}
		defer b.end()
		req = req.WithContext(objectsize.WithRequest(req.Context(), b))
		req.Body = b
		handler.ServeHTTP(w, req)
	})
}

// FlowControl receives the body of a request before the request waits for its seat.
func FlowControl(inner utilflowcontrol.Interface) utilflowcontrol.Interface {
	return &flowControl{inner}
}

type flowControl struct{ utilflowcontrol.Interface }

// Handle implements utilflowcontrol.Interface.
func (f *flowControl) Handle(ctx context.Context, digest utilflowcontrol.RequestDigest,
	note func(*flowcontrolv1.FlowSchema, *flowcontrolv1.PriorityLevelConfiguration, string),
	estimate func() fcrequest.WorkEstimate, noteQueued fairqueuing.QueueNoteFn, execute func()) {
	if b := bodyOf(ctx); b != nil && b.mayReceive(ctx) {
		// The context bounds the wait for a seat, which begins after the body was
		// received.
		deadline, bounded := ctx.Deadline()
		timeout := time.Until(deadline)
		b.receive(digest.User, digest.RequestInfo)
		defer b.release()
		if bounded {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), timeout)
			defer cancel()
			defer context.AfterFunc(b.ctx, cancel)()
		}
	}
	f.Interface.Handle(ctx, digest, note, estimate, noteQueued, execute)
}

// mayReceive reports whether a body is small, or its request is authorized. The filter that
// authorizes requests after they have got a seat refuses the others.
func (b *body) mayReceive(ctx context.Context) bool {
	if b.limits.Authorizer == nil || 0 <= b.length && b.length <= objectsize.HeavyBytes {
		return true
	}
	attributes, err := filters.GetAuthorizerAttributes(ctx)
	if err != nil {
		return false
	}
	decision, _, err := b.limits.Authorizer.Authorize(ctx, attributes)
	return err == nil && decision == authorizer.DecisionAllow
}

// WithBodyLimits rejects requests whose body was not received. It is inside all other
// filters, and receives bodies itself without flow control.
func WithBodyLimits(handler http.Handler, serializer runtime.NegotiatedSerializer) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		b := bodyOf(req.Context())
		info, found := request.RequestInfoFrom(req.Context())
		if b == nil || !found {
			handler.ServeHTTP(w, req)
			return
		}
		who, _ := request.UserFrom(req.Context())
		b.receive(who, info)
		defer b.release()
		if b.err == nil && info.IsResourceRequest {
			mediaType, _, _ := mime.ParseMediaType(req.Header.Get("Content-Type"))
			b.items, b.err = b.checkShape(mediaType, info, serializer)
		}
		if b.err != nil {
			responsewriters.ErrorNegotiated(b.err, serializer, schema.GroupVersion{Group: info.APIGroup, Version: info.APIVersion}, w, req)
			return
		}
		if b.reservation != nil {
			w = responsewriter.WrapForHTTP1Or2(&answer{w, b.reservation})
		}
		handler.ServeHTTP(w, req)
	})
}

// answer records the start of a response: clients may read it slowly.
type answer struct {
	http.ResponseWriter
	reservation *objectsize.Reservation
}

var _ responsewriter.UserProvidedDecorator = &answer{}

// Unwrap implements responsewriter.UserProvidedDecorator.
func (a *answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }

// WriteHeader implements http.ResponseWriter.
func (a *answer) WriteHeader(code int) {
	a.reservation.Written()
	a.ResponseWriter.WriteHeader(code)
}
