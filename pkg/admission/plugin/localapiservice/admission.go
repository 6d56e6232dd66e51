// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package localapiservice refuses APIServices of other servers: annex does not proxy.
package localapiservice

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/kube-aggregator/pkg/apis/apiregistration"
)

// PluginName is the name in --enable-admission-plugins.
const PluginName = "LocalAPIService"

// Plugin refuses APIServices with spec.service.
type Plugin struct {
	*admission.Handler
}

var _ admission.ValidationInterface = &Plugin{}

// New returns the plugin.
func New() *Plugin {
	return &Plugin{admission.NewHandler(admission.Create, admission.Update)}
}

// Validate implements admission.ValidationInterface.
func (p *Plugin) Validate(_ context.Context, attributes admission.Attributes, _ admission.ObjectInterfaces) error {
	if attributes.GetResource().GroupResource() != apiregistration.Resource("apiservices") || attributes.GetSubresource() != "" {
		return nil
	}
	apiService, ok := attributes.GetObject().(*apiregistration.APIService)
	if !ok {
		return apierrors.NewInternalError(fmt.Errorf("expected an APIService, got %T", attributes.GetObject()))
	}
	if apiService.Spec.Service == nil {
		return nil
	}
	return apierrors.NewInvalid(attributes.GetKind().GroupKind(), apiService.Name, field.ErrorList{
		field.Forbidden(field.NewPath("spec", "service"), "annex does not proxy requests to other servers; only local APIServices (without spec.service) are allowed"),
	})
}
