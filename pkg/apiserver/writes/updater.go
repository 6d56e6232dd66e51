// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package writes

import (
	"context"
	"errors"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/storage"
	storeerr "k8s.io/apiserver/pkg/storage/errors"

	"github.com/annex-dev/annex/pkg/apiserver/writes/plan"
	"github.com/annex-dev/annex/pkg/storage/watchcache"
)

// updater is the storage of one update: it stores what was planned.
type updater struct {
	*attempt
	// object is as it was before.
	object *watchcache.Object
}

var _ rest.Patcher = &updater{}

func (u *updater) plan(ctx context.Context) (err error) {
	if err = u.locate(ctx); err != nil {
		return err
	}
	if err = u.planFrom(ctx, false); errors.Is(err, plan.ErrVersion) {
		err = u.planFrom(ctx, true) // the client has an answer that the watch cache has not received yet
	}
	return err
}

func (u *updater) planFrom(ctx context.Context, latest bool) (err error) {
	if u.object, err = u.read(ctx, u.key, latest); err != nil {
		return errUnread
	}
	text, err := u.object.JSON()
	if err != nil {
		return err
	}
	if len(text) > maxPlanned {
		return plan.ErrBody
	}
	u.planned, err = u.schema.Plan(ctx, text, u.write, time.Now())
	return err
}

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
	if err := u.admit(ctx, u.object, admission.Update, options); err != nil {
		return nil, false, u.refused(ctx, err)
	}
	updated, out := &watchcache.Stored{Data: u.planned.Data}, &watchcache.Object{}
	updated.DeletionTimestamp = u.object.GetDeletionTimestamp() // limits exempt objects that are being deleted
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
	if err == nil {
		u.recents.add(u.key, out)
	}
	return out, false, storeerr.InterpretUpdateError(err, u.scope.Resource.GroupResource(), u.name)
}

// refused returns the error of a request that admission has refused, which upstream does only for the object as it is now.
func (u *updater) refused(ctx context.Context, refusal error) error {
	if u.isRetracted() {
		return refusal
	}
	latest, err := u.current(ctx, u.key, true)
	if err != nil || latest.GetResourceVersion() != u.object.GetResourceVersion() {
		return u.retract(errChanged)
	}
	return refusal
}
