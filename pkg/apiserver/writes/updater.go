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
	storeerr "k8s.io/apiserver/pkg/storage/errors"

	"github.com/annex-dev/annex/pkg/apiserver/writes/plan"
	"github.com/annex-dev/annex/pkg/stack"
	"github.com/annex-dev/annex/pkg/storage/watchcache"
)

// updater is the storage of one update: it stores what was planned.
type updater struct{ existing }

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
	if err = u.find(ctx, latest); err != nil {
		return err
	}
	u.planned, err = u.schema.Plan(ctx, u.text, u.write, time.Now())
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
	stack.Grow()
	if err := u.admit(ctx, admission.Update, options); err != nil {
		return nil, false, err
	}
	if u.planned.Deletes {
		out, err := u.remove(ctx, &watchcache.Stored{Data: u.planned.Data})
		return out, false, storeerr.InterpretDeleteError(err, u.scope.Resource.GroupResource(), u.name)
	}
	out, err := u.store(ctx, u.planned.Data, u.metadata.DeletionTimestamp)
	return out, false, storeerr.InterpretUpdateError(err, u.scope.Resource.GroupResource(), u.name)
}
