// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package writes

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/storage"
	storeerr "k8s.io/apiserver/pkg/storage/errors"
	"k8s.io/utils/ptr"

	"github.com/annex-dev/annex/pkg/apiserver/writes/plan"
	"github.com/annex-dev/annex/pkg/storage/watchcache"
)

// deleter is the storage of one deletion: it deletes the object as it was read.
type deleter struct {
	*attempt
	object *watchcache.Object
	uid    types.UID
}

var _ rest.GracefulDeleter = &deleter{}

const (
	// errFinalizers is returned for objects that stay until controllers have finalized them.
	errFinalizers plan.Unsure = "finalizers"
	// errOptions is returned for options that do not delete an object at once.
	errOptions plan.Unsure = "options"
)

func (d *deleter) plan(ctx context.Context) (err error) {
	if err = d.locate(ctx); err != nil {
		return err
	}
	if d.object, err = d.read(ctx, d.key, false); err != nil {
		return errUnread
	}
	text, err := d.object.JSON()
	if err != nil {
		return err
	}
	metadata, err := watchcache.DecodeMetadata(text)
	if err != nil {
		return err
	}
	if len(metadata.Finalizers) > 0 {
		return errFinalizers
	}
	d.uid = metadata.UID
	return nil
}

// Delete implements rest.GracefulDeleter. Upstream's strategy of custom resources ignores grace periods.
func (d *deleter) Delete(ctx context.Context, _ string, _ rest.ValidateObjectFunc, options *metav1.DeleteOptions) (runtime.Object, bool, error) {
	watchcache.GrowStack()
	if !d.deletesAtOnce(options) {
		return nil, false, d.retract(errOptions)
	}
	stored, err := d.object.Stored()
	if err != nil {
		return nil, false, err
	}
	err = d.from.Storage.Delete(ctx, d.key, &watchcache.Object{}, nil, func(ctx context.Context, current runtime.Object) error {
		if current != runtime.Object(stored) {
			return d.retract(errChanged)
		}
		return d.admit(ctx, d.object, admission.Delete, options)
	}, stored, storage.DeleteOptions{})
	if d.isRetracted() {
		err = errRetracted
	}
	if storage.IsNotFound(err) {
		err = d.retract(errChanged)
	}
	if err != nil {
		return nil, false, storeerr.InterpretDeleteError(err, d.scope.Resource.GroupResource(), d.name)
	}
	d.recents.remove(d.key)
	return &metav1.Status{Status: metav1.StatusSuccess, Details: &metav1.StatusDetails{
		Name: d.name, Group: d.scope.Resource.Group, Kind: d.scope.Resource.Resource, UID: d.uid,
	}}, true, nil
}

// deletesAtOnce reports whether upstream would delete an object without finalizers at once. Upstream also words the errors of
// preconditions.
func (d *deleter) deletesAtOnce(options *metav1.DeleteOptions) bool {
	if len(options.DryRun) > 0 || ptr.Deref(options.IgnoreStoreReadErrorWithClusterBreakingPotential, false) {
		return false
	}
	//nolint:staticcheck // clients may still send it
	orphans := ptr.Deref(options.OrphanDependents, false)
	if orphans || ptr.Deref(options.PropagationPolicy, metav1.DeletePropagationBackground) != metav1.DeletePropagationBackground {
		return false
	}
	required := ptr.Deref(options.Preconditions, metav1.Preconditions{})
	return ptr.Deref(required.UID, d.uid) == d.uid && ptr.Deref(required.ResourceVersion, d.object.GetResourceVersion()) == d.object.GetResourceVersion()
}
