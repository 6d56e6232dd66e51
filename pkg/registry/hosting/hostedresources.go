// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package hosting

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/apis/hosting/validation"
	"github.com/annex-dev/annex/pkg/registry/typed"
	"github.com/annex-dev/annex/pkg/table"
)

var hostedResources = typed.Resource{
	Kind: v1alpha1.SchemeGroupVersion.WithKind("HostedResource"),
	// Not "hr", which is used for HelmReleases of Flux.
	ShortNames: []string{"hres"},
	Categories: []string{"annex"},
	Strategy:   mainHostedResourceStrategy,
	Attrs: typed.Fields(func(hosted *v1alpha1.HostedResource) fields.Set {
		return fields.Set{v1alpha1.HostedResourceStoreNameField: hosted.Spec.StoreName}
	}),
	Table: hostedResourceTable,
}

// hostedResourceStrategy is the strategy of the main endpoint.
type hostedResourceStrategy struct {
	typed.SpecStatusStrategy[*v1alpha1.HostedResource]
}

var mainHostedResourceStrategy = hostedResourceStrategy{typed.SpecStatusStrategy[*v1alpha1.HostedResource]{
	ValidatedStrategy:        typed.Validated(typed.ClusterScoped, validation.ValidateHostedResource, validation.ValidateHostedResourceUpdate),
	ValidateStatusUpdateFunc: validation.ValidateHostedResourceStatusUpdate,
}}

// PrepareForCreate sets the phase Pending; the controller finds the definition.
func (s hostedResourceStrategy) PrepareForCreate(ctx context.Context, obj runtime.Object) {
	s.SpecStatusStrategy.PrepareForCreate(ctx, obj)
	hosted := obj.(*v1alpha1.HostedResource)
	hosted.Status.Phase = v1alpha1.HostedResourcePending
	if name := hosted.Spec.StoreName; name != "" {
		setScheduled(hosted, reasonPreassigned, fmt.Sprintf("Created with Store %q in its spec", name))
	}
}

// mayDeleteHostedResource refuses to delete a HostedResource while its definition exists: it is the
// only record of the Store of the objects.
func mayDeleteHostedResource(_ context.Context, obj runtime.Object) error {
	hosted, ok := obj.(*v1alpha1.HostedResource)
	if !ok {
		return fmt.Errorf("delete a HostedResource: unexpected type %T", obj)
	}
	if hosted.Status.DefinitionUID == "" {
		return nil
	}
	return apierrors.NewConflict(v1alpha1.Resource("hostedresources"), hosted.Name, fmt.Errorf(
		"it records the Store of the objects of the resource: delete the CustomResourceDefinition %q first", hosted.Name))
}

type hostedResourceColumn = table.Column[*v1alpha1.HostedResource]

var hostedResourceTable = table.New(v1alpha1.Resource("hostedresources"),
	table.Name[*v1alpha1.HostedResource](),
	hostedResourceColumn{
		Name:        "Store",
		Description: "The Store that holds the objects of the resource.",
		Value:       func(hosted *v1alpha1.HostedResource) any { return table.OrNone(hosted.Spec.StoreName) },
	},
	hostedResourceColumn{
		Name:        "Phase",
		Description: "The phase of the resource: Pending, Hosted or Terminating.",
		Value:       func(hosted *v1alpha1.HostedResource) any { return string(hosted.Status.Phase) },
	},
	hostedResourceColumn{
		Name:        "Objects",
		Type:        "integer",
		Description: "The number of objects of the resource, in all namespaces.",
		Value:       func(hosted *v1alpha1.HostedResource) any { return hosted.Status.Objects },
	},
	hostedResourceColumn{
		Name:        "Bytes",
		Description: "The size of those objects before compression.",
		Value:       func(hosted *v1alpha1.HostedResource) any { return table.Bytes(hosted.Status.Bytes) },
	},
	table.Age[*v1alpha1.HostedResource](),
	hostedResourceColumn{
		Name:        "Stored",
		Description: "The size of those objects in the Store.",
		Priority:    table.Wide,
		Value:       func(hosted *v1alpha1.HostedResource) any { return table.Bytes(hosted.Status.StoredBytes) },
	},
	hostedResourceColumn{
		Name:        "Limits",
		Description: "Usage of the fullest limit in percent, or which limit is reached.",
		Priority:    table.Wide,
		Value:       limitUsage,
	},
	hostedResourceColumn{
		Name:        "Cached",
		Description: "The memory that annex uses to serve those objects.",
		Priority:    table.Wide,
		Value:       cachedBytes,
	},
	hostedResourceColumn{
		Name:        "Published",
		Description: "Whether the main cluster sends requests for the resource to annex.",
		Priority:    table.Wide,
		Value: func(hosted *v1alpha1.HostedResource) any {
			return conditionOr(table.None, hosted.Status.Conditions, v1alpha1.HostedResourcePublished)
		},
	},
	hostedResourceColumn{
		Name:        "Reason",
		Description: "Why the resource is not ready, or why its definition is not synced from the main cluster.",
		Priority:    table.Wide,
		Value:       notReadyReason,
	},
)

// limitUsage returns the highest usage of the limits of all namespaces together. For limits
// per namespace there is only the condition.
func limitUsage(hosted *v1alpha1.HostedResource) any {
	condition := meta.FindStatusCondition(hosted.Status.Conditions, v1alpha1.HostedResourceWithinLimits)
	most, limited := int64(0), false
	for name, used := range map[v1alpha1.ResourceName]int64{
		v1alpha1.ResourceObjects: hosted.Status.Objects,
		v1alpha1.ResourceStorage: hosted.Status.StoredBytes,
	} {
		if limit, ok := hosted.Spec.Limits[name]; ok {
			limited = true
			most = max(most, int64(100*float64(used)/float64(max(limit.Value(), 1))))
		}
	}
	switch {
	case len(hosted.Spec.Limits) == 0 && len(hosted.Spec.NamespaceLimits) == 0:
		return table.None
	case condition == nil:
		return table.Unknown
	case condition.Status != metav1.ConditionTrue || !limited:
		return condition.Reason
	}
	return fmt.Sprintf("%d%%", most)
}

func cachedBytes(hosted *v1alpha1.HostedResource) any {
	if hosted.Status.CachedBytes == 0 {
		return table.Unknown
	}
	return table.Bytes(hosted.Status.CachedBytes)
}

// notReadyReason returns the reason of the first condition that is not True.
func notReadyReason(hosted *v1alpha1.HostedResource) any {
	for _, kind := range []string{v1alpha1.HostedResourceReady, v1alpha1.HostedResourceDefinitionSynced} {
		condition := meta.FindStatusCondition(hosted.Status.Conditions, kind)
		if condition != nil && condition.Status != metav1.ConditionTrue {
			return condition.Reason
		}
	}
	return ""
}
