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
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/initializer"
	mutatingpolicy "k8s.io/apiserver/pkg/admission/plugin/policy/mutating"
	validatingpolicy "k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/quota/v1/generic"
	"k8s.io/kube-aggregator/pkg/apis/apiregistration"
)

// needs are the resources of admissionregistration.k8s.io/v1 that a plugin
// watches and that not every main cluster has. Webhook configurations are in
// every version that annex may stand behind.
var needs = map[string][]string{
	validatingpolicy.PluginName: {"validatingadmissionpolicies", "validatingadmissionpolicybindings"}, // Kubernetes 1.30
	mutatingpolicy.PluginName:   {"mutatingadmissionpolicies", "mutatingadmissionpolicybindings"},     // Kubernetes 1.36
}

// ResourceLister lists the resources of a group version.
type ResourceLister interface {
	ServerResourcesForGroupVersionWithContext(ctx context.Context, groupVersion string) (*metav1.APIResourceList, error)
}

// Unserved returns the plugins that watch something that the main cluster does
// not serve. Such a plugin would wait for it for ever and refuse all writes.
func Unserved(ctx context.Context, main ResourceLister) (sets.Set[string], error) {
	groupVersion := admissionregistrationv1.SchemeGroupVersion.String()
	list, err := main.ServerResourcesForGroupVersionWithContext(ctx, groupVersion)
	if err != nil {
		return nil, fmt.Errorf("ask the main cluster which kinds of %s it serves: %w", groupVersion, err)
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

// QuotaInitializer tells the ResourceQuota plugin what it may count: objects,
// as in count/widgets.example.com. All that annex keeps in namespaces are custom
// resources, and nothing else is counted of those.
func QuotaInitializer() admission.PluginInitializer { return quotaInitializer{} }

type quotaInitializer struct{}

// Initialize is called for every plugin.
func (quotaInitializer) Initialize(plugin admission.Interface) {
	if wants, ok := plugin.(initializer.WantsQuotaConfiguration); ok {
		wants.SetQuotaConfiguration(generic.NewConfiguration(nil, nil))
	}
}

// SpareOwnAPIServices keeps what the main cluster says away from APIServices in
// annex. They are annex's own notes of what it serves: nobody sees them through
// the main cluster, and a webhook on everything that is down would keep annex from
// starting, maybe with the very objects that the webhook's server waits for.
var SpareOwnAPIServices admission.DecoratorFunc = func(handler admission.Interface, name string) admission.Interface {
	if !MainOnly().Has(name) {
		return handler
	}
	return sparing{handler}
}

// sparing leaves APIServices out.
type sparing struct {
	admission.Interface
}

var (
	_ admission.MutationInterface   = sparing{}
	_ admission.ValidationInterface = sparing{}
)

// Admit lets the plugin change the object.
func (s sparing) Admit(ctx context.Context, attributes admission.Attributes, objects admission.ObjectInterfaces) error {
	mutator, ok := s.Interface.(admission.MutationInterface)
	if !ok || spared(attributes) {
		return nil
	}
	return mutator.Admit(ctx, attributes, objects)
}

// Validate lets the plugin refuse the object.
func (s sparing) Validate(ctx context.Context, attributes admission.Attributes, objects admission.ObjectInterfaces) error {
	validator, ok := s.Interface.(admission.ValidationInterface)
	if !ok || spared(attributes) {
		return nil
	}
	return validator.Validate(ctx, attributes, objects)
}

func spared(attributes admission.Attributes) bool {
	return attributes.GetResource().GroupResource() == apiregistration.Resource("apiservices")
}
