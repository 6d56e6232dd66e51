// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package routing

import (
	"context"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/storage"

	"github.com/annex-dev/annex/pkg/storage/limits"
)

// exemptFromLimits has updates pass the limits that must not fail for them, though they may
// add some bytes: those of status, by which controllers tell what is the case, and
// all of an object that is being deleted, which is how room is made.
func exemptFromLimits(ctx context.Context, update storage.UpdateFunc) (context.Context, storage.UpdateFunc) {
	info, ok := request.RequestInfoFrom(ctx)
	ofStatus := ok && info.Subresource == "status"
	ctx, pass := limits.WithExemption(ctx)
	return ctx, func(found runtime.Object, response storage.ResponseMeta) (runtime.Object, *uint64, error) {
		updated, ttl, err := update(found, response)
		pass.Set(err == nil && (ofStatus || isBeingDeleted(updated)))
		return updated, ttl, err
	}
}

func isBeingDeleted(object runtime.Object) bool {
	accessor, err := meta.Accessor(object)
	return err == nil && accessor.GetDeletionTimestamp() != nil
}
