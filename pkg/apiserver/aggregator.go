// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	genericapiserver "k8s.io/apiserver/pkg/server"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	aggregatorapiserver "k8s.io/kube-aggregator/pkg/apiserver"
	aggregatorscheme "k8s.io/kube-aggregator/pkg/apiserver/scheme"

	"github.com/annex-dev/annex/pkg/apiserver/crd"
)

func (c CompletedConfig) newAggregator(delegate genericapiserver.DelegationTarget, crds *crd.Informer) (*aggregatorapiserver.APIAggregator, error) {
	generic, _, err := c.forDelegate(upstreamServer{
		stored: apiregistrationv1.SchemeGroupVersion, codecs: aggregatorscheme.Codecs,
		scheme: aggregatorscheme.Scheme, resources: aggregatorapiserver.DefaultAPIResourceConfigSource(),
	})
	if err != nil {
		return nil, err
	}
	// Only the outermost server's handler chain is used.
	generic.BuildHandlerChainFunc = c.buildHandlerChain(crds)
	config := aggregatorapiserver.Config{
		GenericConfig: &genericapiserver.RecommendedConfig{Config: generic, SharedInformerFactory: c.extra.Informers},
		ExtraConfig: aggregatorapiserver.ExtraConfig{
			ServiceResolver: noProxying,
			// It would watch Services and EndpointSlices, which annex does not serve.
			DisableRemoteAvailableConditionController: true,
		},
	}
	aggregator, err := config.Complete().NewWithDelegate(delegate)
	if err != nil {
		return nil, err
	}
	for name, hook := range c.extra.PostStartHooks {
		if err := aggregator.GenericAPIServer.AddPostStartHook(name, hook); err != nil {
			return nil, err
		}
	}
	installMetrics(aggregator.GenericAPIServer.Handler.NonGoRestfulMux, c.extra.AllMetricBuckets)
	return aggregator, registerAPIServices(aggregator, delegate, crds.Outlines())
}

// noProxying resolves no Service: admission rejects APIServices that have one, and one
// that was stored before must not be dialed.
const noProxying noServices = "annex does not proxy requests to other servers"
