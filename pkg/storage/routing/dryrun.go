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
	if next == nil {
		return dryRunLimits{r}
	}
	return admission.NewChainHandler(next, dryRunLimits{r})
}

type dryRunLimits struct{ router *Router }

var _ admission.ValidationInterface = dryRunLimits{}

// Handles implements admission.Interface.
func (dryRunLimits) Handles(operation admission.Operation) bool { return operation == admission.Create }

// Validate implements admission.ValidationInterface.
func (d dryRunLimits) Validate(_ context.Context, attributes admission.Attributes, _ admission.ObjectInterfaces) error {
	if !attributes.IsDryRun() || attributes.GetSubresource() != "" {
		return nil
	}
	return d.checkLimits(attributes)
}

// checkLimits returns the error that a create would get, if that can be known now.
func (d dryRunLimits) checkLimits(attributes admission.Attributes) error {
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
