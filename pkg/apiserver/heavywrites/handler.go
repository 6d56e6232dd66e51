// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package heavywrites

import (
	"context"
	"fmt"
	"io"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/annex-dev/annex/pkg/storage/objectsize"
)

// Limits are those of request bodies.
type Limits struct {
	// MaxBodyBytes is the size of the largest body.
	MaxBodyBytes int64
	// Budget is what large bodies share.
	Budget *objectsize.Budget
}

// WithLimits holds writes to the limits. It belongs inside of flow control and of
// authorization: who may not write takes nothing of the budget.
func WithLimits(handler http.Handler, limits Limits, serializer runtime.NegotiatedSerializer) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		info, ok := request.RequestInfoFrom(req.Context())
		if !ok || !info.IsResourceRequest || !brings(info.Verb) {
			handler.ServeHTTP(w, req)
			return
		}
		refuse := func(err error) {
			responsewriters.ErrorNegotiated(err, serializer, schema.GroupVersion{Group: info.APIGroup, Version: info.APIVersion}, w, req)
		}
		if req.ContentLength > limits.MaxBodyBytes {
			refuse(apierrors.NewRequestEntityTooLargeError(
				fmt.Sprintf("the request has %d bytes, the limit is %d (--max-object-bytes and a little more)", req.ContentLength, limits.MaxBodyBytes)))
			return
		}
		if req.ContentLength < 0 {
			limits.serveUnknown(handler, w, req)
			return
		}
		ctx, release, err := limits.Budget.Acquire(req.Context(), req.ContentLength)
		if err != nil {
			refuse(err)
			return
		}
		defer release()
		handler.ServeHTTP(w, req.WithContext(ctx))
	})
}

// brings reports whether requests of the verb bring an object, or part of one.
func brings(verb string) bool {
	switch verb {
	case "create", "update", "patch":
		return true
	}
	return false
}

// serveUnknown serves a request whose size is not known before it is read. Only
// when it turns out to be large does it take its part of the budget.
func (l Limits) serveUnknown(handler http.Handler, w http.ResponseWriter, req *http.Request) {
	body := &unknownBody{ReadCloser: req.Body, ctx: req.Context(), limits: l, release: func() {}}
	defer func() { body.release() }()
	req = req.Clone(req.Context())
	req.Body = body
	handler.ServeHTTP(w, req)
}

type unknownBody struct {
	io.ReadCloser
	ctx     context.Context
	limits  Limits
	release func()
	read    int64
	large   bool
}

// Read implements io.Reader.
func (b *unknownBody) Read(p []byte) (int, error) {
	if b.read >= objectsize.HeavyBytes && !b.large {
		_, release, err := b.limits.Budget.Acquire(b.ctx, b.limits.MaxBodyBytes)
		if err != nil {
			return 0, err
		}
		b.release, b.large = release, true
	}
	n, err := b.ReadCloser.Read(p)
	b.read += int64(n)
	return n, err
}
