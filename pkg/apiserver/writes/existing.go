// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package writes

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/storage"

	"github.com/annex-dev/annex/pkg/admission/undecoded"
	"github.com/annex-dev/annex/pkg/apiserver/writes/plan"
	"github.com/annex-dev/annex/pkg/storage/watchcache"
)

// existing is an attempt to write an object that exists, on the condition that it is as it was read.
type existing struct {
	*attempt
	object *watchcache.Object
	// text is the JSON of the object, and metadata is its metadata.
	text     []byte
	metadata *metav1.ObjectMeta
}

// find reads the object, with latest from etcd.
func (e *existing) find(ctx context.Context, latest bool) (err error) {
	if e.object, err = e.read(ctx, latest); err != nil {
		return errUnread
	}
	if e.text, err = e.object.JSON(); err != nil {
		return err
	}
	if len(e.text) > maxPlanned {
		return plan.ErrBody
	}
	e.metadata, err = watchcache.DecodeMetadata(e.text)
	return err
}

// read returns the object as it is, or with latest as etcd has it.
func (e *existing) read(ctx context.Context, latest bool) (*watchcache.Object, error) {
	object, err := e.current(ctx, e.key, latest)
	if !latest && (err == nil || storage.IsNotFound(err)) {
		if recent := e.recents.newer(e.key, object); recent != nil {
			return recent, nil
		}
	}
	return object, err
}

// admit runs the admission plugins on the object and on what is planned.
func (e *existing) admit(ctx context.Context, operation admission.Operation, options runtime.Object) error {
	r := undecoded.NewRequest(e.mapper)
	if err := e.attempt.admit(ctx, r, r.Object(e.metadata, e.text), operation, options); err != nil {
		return e.refused(ctx, err)
	}
	return nil
}

// store stores data in place of the object, and returns the result. deleted is the deletion timestamp in data: limits exempt
// objects that are being deleted.
func (e *existing) store(ctx context.Context, data []byte, deleted *metav1.Time) (*watchcache.Object, error) {
	stored, err := e.object.Stored()
	if err != nil {
		return nil, err
	}
	updated, out := &watchcache.Stored{Data: data}, &watchcache.Object{}
	updated.DeletionTimestamp = deleted
	err = e.from.Storage.GuaranteedUpdate(ctx, e.key, out, false, nil, func(current runtime.Object, _ storage.ResponseMeta) (runtime.Object, *uint64, error) {
		if current != runtime.Object(stored) {
			return nil, nil, e.retract(errChanged)
		}
		return updated, nil, nil
	}, stored)
	if err = e.written(err); err == nil {
		e.recents.add(e.key, out)
	}
	return out, err
}

// remove deletes the object, and returns what it was in the end.
func (e *existing) remove(ctx context.Context, last *watchcache.Stored) (*watchcache.Object, error) {
	out := &watchcache.Object{}
	last.SetResourceVersion(e.object.GetResourceVersion())
	err := e.from.Storage.Delete(ctx, e.key, out, nil, func(_ context.Context, current runtime.Object) error {
		if current != runtime.Object(last) {
			return e.retract(errChanged)
		}
		return nil
	}, last, storage.DeleteOptions{})
	if err = e.written(err); err == nil {
		e.recents.remove(e.key)
		out.SetResourceVersion(e.object.GetResourceVersion())
	}
	return out, err
}

// written returns the error of a write. It retracts the write of an object that is gone.
func (e *existing) written(err error) error {
	if storage.IsNotFound(err) {
		return e.retract(errChanged)
	}
	if e.isRetracted() {
		return errRetracted
	}
	return err
}

// refused returns the error of a request that admission has refused, which upstream does only for the object as it is now.
func (e *existing) refused(ctx context.Context, refusal error) error {
	if e.isRetracted() {
		return refusal
	}
	latest, err := e.current(ctx, e.key, true)
	if err != nil || latest.GetResourceVersion() != e.object.GetResourceVersion() {
		return e.retract(errChanged)
	}
	return refusal
}
