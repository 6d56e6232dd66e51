// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package resourcequota

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

const countPrefix = "count/"

// countedResource returns the resource whose objects a limit by that name counts,
// and false where it is on something else than objects, or on events, which admission
// does not charge.
func countedResource(name corev1.ResourceName) (schema.GroupResource, bool) {
	switch name {
	case corev1.ResourceConfigMaps, corev1.ResourceSecrets, corev1.ResourceQuotas, corev1.ResourcePods,
		corev1.ResourceServices, corev1.ResourceReplicationControllers, corev1.ResourcePersistentVolumeClaims:
		return schema.GroupResource{Resource: string(name)}, true
	}
	counted, ok := strings.CutPrefix(string(name), countPrefix)
	if !ok {
		return schema.GroupResource{}, false
	}
	resource := schema.ParseGroupResource(counted)
	return resource, resource.Resource != "events" || (resource.Group != "" && resource.Group != "events.k8s.io")
}

// counts reports whether a quota counts objects of a resource.
func counts(quota *corev1.ResourceQuota, resource schema.GroupResource) bool {
	for name := range quota.Spec.Hard {
		if counted, ok := countedResource(name); ok && counted == resource {
			return true
		}
	}
	return false
}

// isScoped reports whether a quota is on pods and volume claims of some kind only,
// of which annex has none.
func isScoped(quota *corev1.ResourceQuota) bool {
	return len(quota.Spec.Scopes) > 0 || quota.Spec.ScopeSelector != nil
}
