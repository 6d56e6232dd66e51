// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package hostedresource is the REST storage of HostedResources.
package hostedresource

import (
	"context"
	"fmt"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/registry/generic"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/annex-dev/annex/pkg/apis/hosting"
	"github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/apis/hosting/validation"
	"github.com/annex-dev/annex/pkg/registry/typed"
)

// strategy is that of the main endpoint: it writes spec and metadata.
type strategy struct {
	typed.BaseStrategy
}

// GetResetFields implements rest.ResetFieldsStrategy.
func (strategy) GetResetFields() map[fieldpath.APIVersion]*fieldpath.Set {
	return typed.ResetFields(v1alpha1.SchemeGroupVersion, "status")
}

// PrepareForCreate makes every HostedResource start as Pending: whether anything
// defines the resource is for the controller to see.
func (strategy) PrepareForCreate(_ context.Context, obj runtime.Object) {
	hosted := obj.(*hosting.HostedResource)
	hosted.Status = hosting.HostedResourceStatus{Phase: hosting.HostedResourcePending}
	hosted.Generation = 1
}

func (strategy) Validate(_ context.Context, obj runtime.Object) field.ErrorList {
	return validation.ValidateHostedResource(obj.(*hosting.HostedResource))
}

func (strategy) WarningsOnCreate(_ context.Context, obj runtime.Object) []string {
	return warnings(&obj.(*hosting.HostedResource).Spec, &hosting.HostedResourceSpec{})
}

func (strategy) PrepareForUpdate(_ context.Context, obj, old runtime.Object) {
	newHosted, oldHosted := obj.(*hosting.HostedResource), old.(*hosting.HostedResource)
	newHosted.Status = oldHosted.Status
	if mustIncreaseGeneration(newHosted, oldHosted) {
		newHosted.Generation = oldHosted.Generation + 1
	}
}

func (strategy) ValidateUpdate(_ context.Context, obj, old runtime.Object) field.ErrorList {
	return validation.ValidateHostedResourceUpdate(obj.(*hosting.HostedResource), old.(*hosting.HostedResource))
}

func (strategy) WarningsOnUpdate(_ context.Context, obj, old runtime.Object) []string {
	return warnings(&obj.(*hosting.HostedResource).Spec, &old.(*hosting.HostedResource).Spec)
}

// mustIncreaseGeneration is true for an update that asks for another state than
// before. The generic registry raises the generation of a deletion by itself.
func mustIncreaseGeneration(newHosted, oldHosted *hosting.HostedResource) bool {
	return !apiequality.Semantic.DeepEqual(newHosted.Spec, oldHosted.Spec)
}

// warnings says which of the newly set fields this version of annex keeps but
// does not act on.
func warnings(newSpec, oldSpec *hosting.HostedResourceSpec) []string {
	var out []string
	if name := newSpec.StoreName; name != oldSpec.StoreName && name != "" && name != hosting.DefaultStoreName {
		out = append(out, fmt.Sprintf("spec.storeName: this version of annex keeps every object in the Store %q", hosting.DefaultStoreName))
	}
	if newSpec.StoreSelector != nil && !apiequality.Semantic.DeepEqual(newSpec.StoreSelector, oldSpec.StoreSelector) {
		out = append(out, fmt.Sprintf("spec.storeSelector: this version of annex keeps every object in the Store %q", hosting.DefaultStoreName))
	}
	if newSpec.Compression == hosting.CompressionZstd && oldSpec.Compression != hosting.CompressionZstd {
		out = append(out, "spec.compression: this version of annex writes every object uncompressed")
	}
	return out
}

// statusStrategy is that of /status: it writes status and nothing else.
type statusStrategy struct {
	strategy
}

// GetResetFields implements rest.ResetFieldsStrategy.
func (statusStrategy) GetResetFields() map[fieldpath.APIVersion]*fieldpath.Set {
	return typed.ResetFields(v1alpha1.SchemeGroupVersion, "metadata", "spec")
}

func (statusStrategy) PrepareForUpdate(_ context.Context, obj, old runtime.Object) {
	newHosted, oldHosted := obj.(*hosting.HostedResource), old.(*hosting.HostedResource)
	newHosted.Spec = oldHosted.Spec
	metav1.ResetObjectMetaForStatus(&newHosted.ObjectMeta, &oldHosted.ObjectMeta)
}

func (statusStrategy) ValidateUpdate(_ context.Context, obj, old runtime.Object) field.ErrorList {
	return validation.ValidateHostedResourceStatusUpdate(obj.(*hosting.HostedResource), old.(*hosting.HostedResource))
}

// WarningsOnUpdate has nothing to say: the spec is not written.
func (statusStrategy) WarningsOnUpdate(_ context.Context, _, _ runtime.Object) []string { return nil }

// attrs returns what selectors see of a HostedResource.
func attrs(obj runtime.Object) (labels.Set, fields.Set, error) {
	hosted, ok := obj.(*hosting.HostedResource)
	if !ok {
		return nil, nil, fmt.Errorf("selecting hostedresources: unexpected type %T", obj)
	}
	selectable := fields.Set{v1alpha1.HostedResourceStoreNameField: hosted.Spec.StoreName}
	return hosted.Labels, generic.AddObjectMetaFieldsSet(selectable, &hosted.ObjectMeta, false), nil
}
