// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package hostedresource is the REST storage of HostedResources.
package hostedresource

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/generic"

	"github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/apis/hosting/validation"
	"github.com/annex-dev/annex/pkg/registry/typed"
)

// strategy is that of the main endpoint.
type strategy struct {
	typed.SpecStatusStrategy[*v1alpha1.HostedResource, v1alpha1.HostedResourceSpec, v1alpha1.HostedResourceStatus]
}

func newStrategy(typer runtime.ObjectTyper) strategy {
	return strategy{typed.SpecStatusStrategy[*v1alpha1.HostedResource, v1alpha1.HostedResourceSpec, v1alpha1.HostedResourceStatus]{
		ValidatedStrategy:        typed.Validated(typed.ClusterScoped(typer), validation.ValidateHostedResource, validation.ValidateHostedResourceUpdate),
		ValidateStatusUpdateFunc: validation.ValidateHostedResourceStatusUpdate,
		Version:                  v1alpha1.SchemeGroupVersion,
		Spec:                     func(object *v1alpha1.HostedResource) *v1alpha1.HostedResourceSpec { return &object.Spec },
		Status:                   func(object *v1alpha1.HostedResource) *v1alpha1.HostedResourceStatus { return &object.Status },
	}}
}

// PrepareForCreate sets the phase Pending; the controller finds the definition.
func (s strategy) PrepareForCreate(ctx context.Context, obj runtime.Object) {
	s.SpecStatusStrategy.PrepareForCreate(ctx, obj)
	hosted := obj.(*v1alpha1.HostedResource)
	hosted.Status.Phase = v1alpha1.HostedResourcePending
	if name := hosted.Spec.StoreName; name != "" {
		setScheduled(hosted, reasonPreassigned, fmt.Sprintf("Created with Store %q in its spec", name))
	}
}

// attrs returns what selectors match.
func attrs(obj runtime.Object) (labels.Set, fields.Set, error) {
	hosted, ok := obj.(*v1alpha1.HostedResource)
	if !ok {
		return nil, nil, fmt.Errorf("select hostedresources: unexpected type %T", obj)
	}
	selectable := fields.Set{v1alpha1.HostedResourceStoreNameField: hosted.Spec.StoreName}
	return hosted.Labels, generic.AddObjectMetaFieldsSet(selectable, &hosted.ObjectMeta, false), nil
}
