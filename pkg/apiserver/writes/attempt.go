// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package writes

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"sync/atomic"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/endpoints/handlers"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/annex-dev/annex/pkg/admission/undecoded"
	"github.com/annex-dev/annex/pkg/apiserver/front"
	"github.com/annex-dev/annex/pkg/apiserver/writes/plan"
	"github.com/annex-dev/annex/pkg/storage/watchcache"
)

// attempt is a write that was planned. Upstream's handler may return before its storage, when the request has timed out.
type attempt struct {
	*endpoint
	scope                *handlers.RequestScope
	namespace, name, key string
	write                plan.Write
	// planned has the JSON that is stored. It is nil for a deletion.
	planned *plan.Planned
	// retracted is set once upstream's handler has to serve the request.
	retracted atomic.Pointer[plan.Unsure]
}

// locate sets the key of the object.
func (a *attempt) locate(ctx context.Context) (err error) {
	if a.key, err = front.Key(ctx, a.from, a.name); err != nil {
		return errUnread
	}
	return nil
}

func (a *attempt) isRetracted() bool { return a.retracted.Load() != nil }

// errRetracted ends the handler of a retracted request. It is never sent. Upstream logs other errors than a Status, and
// repeats a patch after a conflict.
var errRetracted = apierrors.NewServiceUnavailable("the write was not planned")

func (a *attempt) retract(reason plan.Unsure) error {
	a.recents.remove(a.key)
	a.retracted.Store(&reason)
	return errRetracted
}

// answer serves a request by one of upstream's handlers.
func (a *attempt) answer(handler http.HandlerFunc, w http.ResponseWriter, req *http.Request, r *front.Request) error {
	response := &retractable{ResponseWriter: w, header: http.Header{}, isRetracted: a.isRetracted}
	r.Warn(handler)(response, req)
	if reason := a.retracted.Load(); reason != nil && response.code == 0 {
		rewind(req, a.write.Body)
		return *reason
	}
	r.Observe(req, response.code, response.bytes)
	return nil
}

// New implements rest.Updater and rest.Creater. The decoder returns the object as it is.
func (a *attempt) New() runtime.Object {
	return &input{body: a.write.Body, ObjectMeta: metav1.ObjectMeta{
		Name: a.name, Namespace: a.namespace, UID: a.planned.UID, ResourceVersion: a.planned.ResourceVersion,
	}}
}

// Destroy implements rest.Storage.
func (*attempt) Destroy() {}

// admit runs the admission plugins on the planned object and on the one before, if there are such. It retracts the write if a
// plugin may change the object.
func (a *attempt) admit(
	ctx context.Context, r *undecoded.Request, before runtime.Object, operation admission.Operation, options runtime.Object,
) error {
	var planned runtime.Object
	if a.planned != nil {
		metadata, err := watchcache.DecodeMetadata(a.planned.Data)
		if err != nil {
			return err
		}
		if before != nil {
			metadata.ResourceVersion = before.(metav1.Object).GetResourceVersion()
		}
		planned = r.Object(metadata, a.planned.Data)
	}
	user, _ := request.UserFrom(ctx)
	attributes := func(object runtime.Object, name string) admission.Attributes {
		return admission.NewAttributesRecord(object, before, a.scope.Kind, a.namespace, name, a.scope.Resource, a.scope.Subresource,
			operation, options, false, user)
	}
	first := attributes(planned, a.name)
	if a.planned != nil && a.planned.Generated { // upstream generates a name after plugins have changed the object
		unnamed := planned.DeepCopyObject().(*undecoded.Object)
		unnamed.Name = ""
		first = attributes(unnamed, "")
	}
	chain := admission.WithAudit(a.chain)
	err := r.Admit(ctx, chain, first)
	if errors.Is(err, undecoded.ErrMutates) {
		return a.retract(errMutating)
	}
	if err != nil {
		return err
	}
	return r.Validate(ctx, chain, attributes(planned, a.name))
}

// retractable is a response of which nothing is sent if the request is retracted.
type retractable struct {
	http.ResponseWriter
	header      http.Header
	isRetracted func() bool
	// code is 0 until something was sent.
	code, bytes int
}

// Header implements http.ResponseWriter.
func (w *retractable) Header() http.Header { return w.header }

// WriteHeader implements http.ResponseWriter.
func (w *retractable) WriteHeader(code int) {
	if w.isRetracted() || w.code != 0 {
		return
	}
	w.code = code
	maps.Copy(w.ResponseWriter.Header(), w.header)
	w.ResponseWriter.WriteHeader(code)
}

// Write implements http.ResponseWriter.
func (w *retractable) Write(data []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	if w.code == 0 {
		return len(data), nil
	}
	written, err := w.ResponseWriter.Write(data)
	w.bytes += written
	return written, err
}
