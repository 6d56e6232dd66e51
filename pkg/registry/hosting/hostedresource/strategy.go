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
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/registry/generic"

	"github.com/annex-dev/annex/pkg/apis/hosting"
	"github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/apis/hosting/validation"
	"github.com/annex-dev/annex/pkg/registry/typed"
)

// strategy is that of the main endpoint.
type strategy struct {
	typed.SpecStatusStrategy[*hosting.HostedResource, hosting.HostedResourceSpec, hosting.HostedResourceStatus]
}

func newStrategy(typer runtime.ObjectTyper) strategy {
	return strategy{typed.SpecStatusStrategy[*hosting.HostedResource, hosting.HostedResourceSpec, hosting.HostedResourceStatus]{
		BaseStrategy: typed.ClusterScoped(typer),
		Version:      v1alpha1.SchemeGroupVersion,
		Spec:         func(object *hosting.HostedResource) *hosting.HostedResourceSpec { return &object.Spec },
		Status:       func(object *hosting.HostedResource) *hosting.HostedResourceStatus { return &object.Status },
	}}
}

// PrepareForCreate makes every HostedResource start as Pending: whether anything
// defines the resource is for the controller to see.
func (s strategy) PrepareForCreate(ctx context.Context, obj runtime.Object) {
	s.SpecStatusStrategy.PrepareForCreate(ctx, obj)
	hosted := obj.(*hosting.HostedResource)
	hosted.Status.Phase = hosting.HostedResourcePending
	if name := hosted.Spec.StoreName; name != "" {
		setScheduled(hosted, reasonPreassigned, fmt.Sprintf("Made with Store %q in its spec", name))
	}
}

func (strategy) Validate(_ context.Context, obj runtime.Object) field.ErrorList {
	return validation.ValidateHostedResource(obj.(*hosting.HostedResource))
}

func (strategy) ValidateUpdate(_ context.Context, obj, old runtime.Object) field.ErrorList {
	return validation.ValidateHostedResourceUpdate(obj.(*hosting.HostedResource), old.(*hosting.HostedResource))
}

// statusStrategy is that of /status.
type statusStrategy struct {
	typed.StatusStrategy[*hosting.HostedResource, hosting.HostedResourceSpec, hosting.HostedResourceStatus]
}

func newStatusStrategy(typer runtime.ObjectTyper) statusStrategy {
	return statusStrategy{newStrategy(typer).ForStatus()}
}

func (statusStrategy) ValidateUpdate(_ context.Context, obj, old runtime.Object) field.ErrorList {
	return validation.ValidateHostedResourceStatusUpdate(obj.(*hosting.HostedResource), old.(*hosting.HostedResource))
}

// attrs returns what selectors see of a HostedResource.
func attrs(obj runtime.Object) (labels.Set, fields.Set, error) {
	hosted, ok := obj.(*hosting.HostedResource)
	if !ok {
		return nil, nil, fmt.Errorf("selecting hostedresources: unexpected type %T", obj)
	}
	selectable := fields.Set{v1alpha1.HostedResourceStoreNameField: hosted.Spec.StoreName}
	return hosted.Labels, generic.AddObjectMetaFieldsSet(selectable, &hosted.ObjectMeta, false), nil
}
