// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package routing

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/admission"

	"github.com/annex-dev/annex/pkg/storage/layer/limits"
)

// WithDryRunLimits refuses dry runs of creates that would exceed the limits of the resource.
// Otherwise only a real write is checked against them.
func (r *Router) WithDryRunLimits(next admission.Interface) admission.Interface {
	return dryRunAdmission{router: r, next: next}
}

type dryRunAdmission struct {
	router *Router
	next   admission.Interface
}

var (
	_ admission.MutationInterface   = dryRunAdmission{}
	_ admission.ValidationInterface = dryRunAdmission{}
)

// Handles implements admission.Interface.
func (d dryRunAdmission) Handles(operation admission.Operation) bool {
	return operation == admission.Create || d.nextHandles(operation)
}

func (d dryRunAdmission) nextHandles(operation admission.Operation) bool {
	return d.next != nil && d.next.Handles(operation)
}

// Admit implements admission.MutationInterface.
func (d dryRunAdmission) Admit(ctx context.Context, attributes admission.Attributes, objects admission.ObjectInterfaces) error {
	if mutates, ok := d.next.(admission.MutationInterface); ok && d.nextHandles(attributes.GetOperation()) {
		return mutates.Admit(ctx, attributes, objects)
	}
	return nil
}

// Validate implements admission.ValidationInterface.
func (d dryRunAdmission) Validate(ctx context.Context, attributes admission.Attributes, objects admission.ObjectInterfaces) error {
	if validates, ok := d.next.(admission.ValidationInterface); ok && d.nextHandles(attributes.GetOperation()) {
		if err := validates.Validate(ctx, attributes, objects); err != nil {
			return err
		}
	}
	if !attributes.IsDryRun() || attributes.GetOperation() != admission.Create || attributes.GetSubresource() != "" {
		return nil
	}
	return d.checkLimits(attributes)
}

// checkLimits returns the error that a create would get, if that can be known now.
func (d dryRunAdmission) checkLimits(attributes admission.Attributes) error {
	resource := attributes.GetResource().GroupResource()
	hosted, err := d.router.routes.hosted.Get(resource.String())
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	of := limits.Of(hosted)
	if of.None() || hosted.Spec.StoreName == "" {
		return nil
	}
	store, err := d.router.config.Store(hosted.Spec.StoreName)
	if err != nil {
		return storeUnavailable(hosted.Spec.StoreName, err)
	}
	return limits.CheckCreate(store.Usage(), of, resource, attributes.GetNamespace(), attributes.GetName())
}
