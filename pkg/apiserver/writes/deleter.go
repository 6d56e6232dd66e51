// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package writes

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/registry/rest"
	storeerr "k8s.io/apiserver/pkg/storage/errors"
	"k8s.io/utils/ptr"

	"github.com/annex-dev/annex/pkg/apiserver/writes/plan"
	"github.com/annex-dev/annex/pkg/stack"
)

// deleter is the storage of one deletion: it deletes the object, or marks one that has finalizers as deleted.
type deleter struct {
	existing
	// marked is stored if the object has finalizers.
	marked []byte
}

var _ rest.GracefulDeleter = &deleter{}

// errOptions is returned for options that add or remove finalizers, and for preconditions that do not hold.
const errOptions plan.Unsure = "options"

func (d *deleter) plan(ctx context.Context) (err error) {
	if err = d.locate(ctx); err != nil {
		return err
	}
	if err = d.find(ctx, false); err == nil && len(d.metadata.Finalizers) > 0 {
		d.marked, err = d.schema.MarkDeleted(d.text, time.Now())
	}
	return err
}

// Delete implements rest.GracefulDeleter. Upstream's strategy of custom resources ignores grace periods.
func (d *deleter) Delete(ctx context.Context, _ string, _ rest.ValidateObjectFunc, options *metav1.DeleteOptions) (runtime.Object, bool, error) {
	stack.Grow()
	if !d.isPlain(options) {
		return nil, false, d.retract(errOptions)
	}
	if err := d.admit(ctx, admission.Delete, options); err != nil {
		return nil, false, err
	}
	resource := d.scope.Resource.GroupResource()
	if d.marked != nil {
		marked, err := d.store(ctx, d.marked, new(metav1.Now()))
		return marked, false, storeerr.InterpretUpdateError(err, resource, d.name)
	}
	last, err := d.object.Stored()
	if err != nil {
		return nil, false, err
	}
	if _, err := d.remove(ctx, last); err != nil {
		return nil, false, storeerr.InterpretDeleteError(err, resource, d.name)
	}
	return &metav1.Status{Status: metav1.StatusSuccess, Details: &metav1.StatusDetails{
		Name: d.name, Group: resource.Group, Kind: resource.Resource, UID: d.metadata.UID,
	}}, true, nil
}

// isPlain reports whether options leave the finalizers as they are, and preconditions hold. Upstream words their errors.
func (d *deleter) isPlain(options *metav1.DeleteOptions) bool {
	if len(options.DryRun) > 0 || ptr.Deref(options.IgnoreStoreReadErrorWithClusterBreakingPotential, false) {
		return false
	}
	//nolint:staticcheck // clients may still send it
	orphans := ptr.Deref(options.OrphanDependents, false)
	if orphans || ptr.Deref(options.PropagationPolicy, metav1.DeletePropagationBackground) != metav1.DeletePropagationBackground {
		return false
	}
	required := ptr.Deref(options.Preconditions, metav1.Preconditions{})
	return ptr.Deref(required.UID, d.metadata.UID) == d.metadata.UID && ptr.Deref(required.ResourceVersion, d.object.GetResourceVersion()) == d.object.GetResourceVersion()
}
