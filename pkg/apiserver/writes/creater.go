// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package writes

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/registry/rest"
	storeerr "k8s.io/apiserver/pkg/storage/errors"

	"github.com/annex-dev/annex/pkg/admission/undecoded"
	"github.com/annex-dev/annex/pkg/stack"
	"github.com/annex-dev/annex/pkg/storage/watchcache"
)

// creater is the storage of one creation: it stores what was planned.
type creater struct{ *attempt }

var _ rest.Creater = creater{}

func (c creater) plan(ctx context.Context) (err error) {
	if c.planned, err = c.schema.Create(ctx, c.write, c.namespace, uuid.NewUUID(), time.Now()); err != nil {
		return err
	}
	c.name = c.planned.Name
	return c.locate(ctx)
}

// Create implements rest.Creater.
func (c creater) Create(ctx context.Context, _ runtime.Object, _ rest.ValidateObjectFunc, options *metav1.CreateOptions) (runtime.Object, error) {
	stack.Grow()
	if err := c.admit(ctx, undecoded.NewRequest(c.mapper), nil, admission.Create, options); err != nil {
		return nil, err
	}
	out := &watchcache.Object{}
	if err := c.from.Storage.Create(ctx, c.key, &watchcache.Stored{Data: c.planned.Data}, out, 0); err != nil {
		return nil, c.interpret(ctx, err)
	}
	c.recents.add(c.key, out)
	return out, nil
}

// interpret words an error of storage as upstream does. A retracted creation would be admitted twice, and quotas would count it
// twice, as upstream does for each name that it generates.
func (c creater) interpret(ctx context.Context, err error) error {
	err = storeerr.InterpretCreateError(err, c.scope.Resource.GroupResource(), c.name)
	var exists *apierrors.StatusError
	if !apierrors.IsAlreadyExists(err) || !errors.As(err, &exists) {
		return err
	}
	if c.planned.Generated {
		return c.retract(errChanged)
	}
	if found, getErr := c.current(ctx, c.key, true); getErr == nil && found.GetDeletionTimestamp() != nil {
		exists.ErrStatus.Message = fmt.Sprintf("object is being deleted: %s", exists.ErrStatus.Message)
	}
	return exists
}
