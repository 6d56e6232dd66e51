// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package options

import (
	"fmt"

	upstreamadmission "k8s.io/apiserver/pkg/admission"
	admissionmetrics "k8s.io/apiserver/pkg/admission/metrics"
	genericapiserver "k8s.io/apiserver/pkg/server"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"

	"github.com/annex-dev/annex/pkg/admission"
)

// Admission says which admission plugins check writes.
type Admission struct {
	*genericoptions.AdmissionOptions
}

// NewAdmission returns annex's plugins, in their order, all on.
func NewAdmission() *Admission {
	return &Admission{&genericoptions.AdmissionOptions{
		Plugins:                admission.NewPlugins(),
		RecommendedPluginOrder: admission.Order(),
		DefaultOffPlugins:      admission.DefaultOff(),
		Decorators:             upstreamadmission.Decorators{upstreamadmission.DecoratorFunc(admissionmetrics.WithControllerMetrics)},
	}}
}

// ApplyTo builds the plugins; generic must have its authorizer already.
func (o *Admission) ApplyTo(generic *genericapiserver.Config, annexInformers informers.SharedInformerFactory, annexClient kubernetes.Interface, annexDynamicClient dynamic.Interface) error {
	err := o.AdmissionOptions.ApplyTo(generic, annexInformers, annexClient, annexDynamicClient, generic.FeatureGate, generic.EffectiveVersion)
	if err != nil {
		return fmt.Errorf("--enable-admission-plugins, --disable-admission-plugins, --admission-control-config-file: %w", err)
	}
	return nil
}
