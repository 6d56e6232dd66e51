// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"fmt"
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	mutatingpolicy "k8s.io/apiserver/pkg/admission/plugin/policy/mutating"
	validatingpolicy "k8s.io/apiserver/pkg/admission/plugin/policy/validating"
)

// needs are the resources of admissionregistration.k8s.io/v1 that a plugin watches and
// that older main clusters do not serve. All supported versions have webhook configurations.
var needs = map[string][]string{
	validatingpolicy.PluginName: {"validatingadmissionpolicies", "validatingadmissionpolicybindings"}, // Kubernetes 1.30
	mutatingpolicy.PluginName:   {"mutatingadmissionpolicies", "mutatingadmissionpolicybindings"},     // Kubernetes 1.36
}

// ResourceLister lists the resources of a group version.
type ResourceLister interface {
	ServerResourcesForGroupVersionWithContext(ctx context.Context, groupVersion string) (*metav1.APIResourceList, error)
}

// Unserved returns the plugins that watch resources that the main cluster does not serve.
// Such a plugin would never sync and refuse all writes.
func Unserved(ctx context.Context, main ResourceLister) (sets.Set[string], error) {
	groupVersion := admissionregistrationv1.SchemeGroupVersion.String()
	list, err := main.ServerResourcesForGroupVersionWithContext(ctx, groupVersion)
	if err != nil {
		return nil, fmt.Errorf("discover the resources of %s in the main cluster: %w", groupVersion, err)
	}
	unserved := sets.New[string]()
	for plugin, resources := range needs {
		for _, resource := range resources {
			if !slices.ContainsFunc(list.APIResources, func(served metav1.APIResource) bool { return served.Name == resource }) {
				unserved.Insert(plugin)
			}
		}
	}
	return unserved, nil
}
