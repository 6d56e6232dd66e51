// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package writes

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/storage"

	"github.com/annex-dev/annex/pkg/apiserver/writes/plan"
	"github.com/annex-dev/annex/pkg/storage/watchcache"
)

// existing is an attempt to write an object that exists, on the condition that it is as it was read.
type existing struct {
	*attempt
	object *watchcache.Object
}

// find reads the object, with latest from etcd, and returns its JSON.
func (e *existing) find(ctx context.Context, latest bool) (text []byte, err error) {
	if e.object, err = e.read(ctx, e.key, latest); err != nil {
		return nil, errUnread
	}
	if text, err = e.object.JSON(); err == nil && len(text) > maxPlanned {
		return nil, plan.ErrBody
	}
	return text, err
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
