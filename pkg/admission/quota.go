// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"io"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/resourcequota"
	"k8s.io/apiserver/pkg/admission/plugin/resourcequota/apis/resourcequota/validation"
	"k8s.io/client-go/informers"
	corelisters "k8s.io/client-go/listers/core/v1"
)

// quotaEvaluators is upstream's number of concurrent evaluations.
const quotaEvaluators = 5

// quotaPlugin is upstream's ResourceQuota plugin, with a shortcut for namespaces without
// quotas: upstream passes every write to a worker and waits for it.
type quotaPlugin struct {
	*resourcequota.QuotaAdmission

	// unlimited is true if no resource requires a quota.
	unlimited bool
	quotas    corelisters.ResourceQuotaLister
	hasSynced func() bool
}

func registerQuota(plugins *admission.Plugins) {
	plugins.Register(resourcequota.PluginName, func(config io.Reader) (admission.Interface, error) {
		configuration, err := resourcequota.LoadConfiguration(config)
		if err != nil {
			return nil, err
		}
		if errs := validation.ValidateConfiguration(configuration); len(errs) > 0 {
			return nil, errs.ToAggregate()
		}
		upstream, err := resourcequota.NewResourceQuota(configuration, quotaEvaluators)
		if err != nil {
			return nil, err
		}
		return &quotaPlugin{QuotaAdmission: upstream, unlimited: len(configuration.LimitedResources) == 0}, nil
	})
}

// SetExternalKubeInformerFactory implements initializer.WantsExternalKubeInformerFactory.
func (p *quotaPlugin) SetExternalKubeInformerFactory(factory informers.SharedInformerFactory) {
	p.QuotaAdmission.SetExternalKubeInformerFactory(factory)
	quotas := factory.Core().V1().ResourceQuotas()
	p.quotas, p.hasSynced = quotas.Lister(), quotas.Informer().HasSynced
}

// Validate charges the quotas of the namespace, if any.
func (p *quotaPlugin) Validate(ctx context.Context, attributes admission.Attributes, objects admission.ObjectInterfaces) error {
	if p.unlimited && p.hasSynced() {
		quotas, err := p.quotas.ResourceQuotas(attributes.GetNamespace()).List(labels.Everything())
		if err == nil && len(quotas) == 0 {
			return nil
		}
	}
	return p.QuotaAdmission.Validate(ctx, attributes, objects)
}
