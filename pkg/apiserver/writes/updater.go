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
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/storage"
	storeerr "k8s.io/apiserver/pkg/storage/errors"

	"github.com/annex-dev/annex/pkg/admission/undecoded"
	"github.com/annex-dev/annex/pkg/apiserver/writes/plan"
	"github.com/annex-dev/annex/pkg/storage/watchcache"
)

// updater is the storage of one request: it stores what was planned. Upstream's handler may return before it, when the
// request has timed out.
type updater struct {
	*endpoint
	scope     *handlers.RequestScope
	name, key string
	write     plan.Write
	// object is as it was before, and planned the JSON that is stored.
	object  *watchcache.Object
	planned *plan.Planned
	// retracted is set once upstream's handler has to serve the request.
	retracted atomic.Pointer[plan.Unsure]
}

var _ rest.Patcher = &updater{}

func (u *updater) isRetracted() bool { return u.retracted.Load() != nil }

// errRetracted ends the handler of a retracted request. It is never sent. Upstream logs other errors than a Status, and
// repeats a patch after a conflict.
var errRetracted = apierrors.NewServiceUnavailable("the write was not planned")

func (u *updater) retract(reason plan.Unsure) error {
	u.retracted.Store(&reason)
	return errRetracted
}

// New implements rest.Updater. The decoder returns the object as it is.
func (u *updater) New() runtime.Object {
	return &input{body: u.write.Body, ObjectMeta: metav1.ObjectMeta{
		Name: u.name, Namespace: u.object.GetNamespace(), UID: u.planned.UID, ResourceVersion: u.planned.ResourceVersion,
	}}
}

// Destroy implements rest.Storage.
func (*updater) Destroy() {}

// Get implements rest.Getter.
func (u *updater) Get(context.Context, string, *metav1.GetOptions) (runtime.Object, error) {
	return u.object, nil
}

// Update implements rest.Updater.
func (u *updater) Update(
	ctx context.Context, _ string, _ rest.UpdatedObjectInfo, _ rest.ValidateObjectFunc, _ rest.ValidateObjectUpdateFunc,
	_ bool, options *metav1.UpdateOptions,
) (runtime.Object, bool, error) {
	watchcache.GrowStack()
	stored, err := u.object.Stored()
	if err != nil {
		return nil, false, err
	}
	if err := u.admit(ctx, options); err != nil {
		return nil, false, u.refused(ctx, err)
	}
	updated, out := &watchcache.Stored{Data: u.planned.Data}, &watchcache.Object{}
	err = u.from.Storage.GuaranteedUpdate(ctx, u.key, out, false, nil, func(current runtime.Object, _ storage.ResponseMeta) (runtime.Object, *uint64, error) {
		if current != runtime.Object(stored) {
			return nil, nil, u.retract(errChanged)
		}
		return updated, nil, nil
	}, stored)
	if u.isRetracted() {
		err = errRetracted
	}
	if storage.IsNotFound(err) {
		err = u.retract(errChanged)
	}
	return out, false, storeerr.InterpretUpdateError(err, u.scope.Resource.GroupResource(), u.name)
}

// refused returns the error of a request that admission has refused, which upstream does only for the object as it is now.
func (u *updater) refused(ctx context.Context, refusal error) error {
	if errors.Is(refusal, undecoded.ErrMutates) {
		return u.retract(errMutating)
	}
	latest, err := u.current(ctx, u.key, true)
	if err != nil || latest.GetResourceVersion() != u.object.GetResourceVersion() {
		return u.retract(errChanged)
	}
	return refusal
}

// admit runs the admission plugins on both objects.
func (u *updater) admit(ctx context.Context, options *metav1.UpdateOptions) error {
	before, err := u.object.JSON()
	if err != nil {
		return err
	}
	metadata, ok := u.object.DecodeMetadata().(*metav1.ObjectMeta)
	if !ok {
		return errors.New("read the metadata of the stored object")
	}
	changed, err := watchcache.DecodeMetadata(u.planned.Data)
	if err != nil {
		return err
	}
	changed.ResourceVersion = metadata.ResourceVersion
	r := undecoded.NewRequest(u.mapper)
	user, _ := request.UserFrom(ctx)
	return r.Admit(ctx, admission.WithAudit(u.chain), admission.NewAttributesRecord(
		r.Object(changed, u.planned.Data), r.Object(metadata, before), u.scope.Kind, metadata.Namespace, u.name, u.scope.Resource,
		u.scope.Subresource, admission.Update, options, false, user,
	))
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
