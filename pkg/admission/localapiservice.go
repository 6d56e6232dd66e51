// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/kube-aggregator/pkg/apis/apiregistration"
)

const localAPIServiceName = "LocalAPIService"

// localAPIService refuses APIServices of other servers: annex does not proxy.
type localAPIService struct{ *admission.Handler }

var _ admission.ValidationInterface = localAPIService{}

func newLocalAPIService() localAPIService {
	return localAPIService{admission.NewHandler(admission.Create, admission.Update)}
}

// Validate implements admission.ValidationInterface.
func (localAPIService) Validate(_ context.Context, attributes admission.Attributes, _ admission.ObjectInterfaces) error {
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
