// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package hostedresource

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/storage/watchcache"
)

// Reasons of the condition CachedAsSpecified.
const (
	reasonMemoryBudget       = "MemoryBudgetExceeded"
	reasonWithinMemoryBudget = "WithinMemoryBudget"
)

// Caches has the watch caches of this process. A *watchcache.Budget is one.
type Caches interface {
	// Usage returns the memory of the watch caches of a resource.
	Usage(resource schema.GroupResource) (usage watchcache.Usage, known bool)
	// Reduced returns how the objects are kept because spec.cache would exceed the memory
	// budget, and why.
	Reduced(resource schema.GroupResource) (to hostingv1alpha1.Cache, why string, reduced bool)
	// AddHandler registers a handler of changes until remove is called.
	AddHandler(handler func(schema.GroupResource)) (remove func())
}

// setCachedAsSpecified sets the condition CachedAsSpecified. A resource gets it when it is first
// reduced.
func (r *reconciler) setCachedAsSpecified(status *hostingv1alpha1.HostedResourceStatus, resource *hosted) {
	to, why, reduced := r.caches.Reduced(schema.ParseGroupResource(resource.Name))
	c := metav1.Condition{
		Type: hostingv1alpha1.HostedResourceCachedAsSpecified, Status: metav1.ConditionTrue, Reason: reasonWithinMemoryBudget,
		Message: "The memory budget allows what spec.cache specifies",
	}
	switch {
	case reduced:
		c.Status, c.Reason = metav1.ConditionFalse, reasonMemoryBudget
		c.Message = fmt.Sprintf("%s. Its objects are kept as with spec.cache=%s. Raise the budget, or set spec.cache of resources that are rarely read to Compressed or None",
			why, to)
	case meta.FindStatusCondition(status.Conditions, hostingv1alpha1.HostedResourceCachedAsSpecified) == nil:
		return
	}
	r.setCondition(status, resource, c)
}
