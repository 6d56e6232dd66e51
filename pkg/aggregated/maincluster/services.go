// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package maincluster

import (
	"go.opentelemetry.io/otel/trace"
	"k8s.io/apiserver/pkg/util/webhook"
	aggregatorapiserver "k8s.io/kube-aggregator/pkg/apiserver"
)

// ServiceResolver finds the Services that webhooks name, by their cluster IP or
// external name, as kube-apiserver does.
func (c *Cluster) ServiceResolver() webhook.ServiceResolver {
	return aggregatorapiserver.NewClusterIPServiceResolver(c.Informers.Core().V1().Services().Lister())
}

// WebhookCredentials are what annex logs in to webhooks with: one at
// kubernetes.default.svc is the main cluster itself.
func (c *Cluster) WebhookCredentials(traces trace.TracerProvider) webhook.AuthenticationInfoResolverWrapper {
	return webhook.NewDefaultAuthenticationInfoResolverWrapper(nil, nil, c.Config, traces)
}
