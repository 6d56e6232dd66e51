// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package maincluster

import (
	"go.opentelemetry.io/otel/trace"
	"k8s.io/apiserver/pkg/util/webhook"
	aggregatorapiserver "k8s.io/kube-aggregator/pkg/apiserver"
)

// ServiceResolver resolves the Services of webhooks to their cluster IP or external
// name, as kube-apiserver does.
func (c *Cluster) ServiceResolver() webhook.ServiceResolver {
	return aggregatorapiserver.NewClusterIPServiceResolver(c.Informers.Core().V1().Services().Lister())
}

// WebhookCredentials authenticate annex to webhooks: one at kubernetes.default.svc is
// the main cluster itself.
func (c *Cluster) WebhookCredentials(traces trace.TracerProvider) webhook.AuthenticationInfoResolverWrapper {
	return webhook.NewDefaultAuthenticationInfoResolverWrapper(nil, nil, c.Config, traces)
}
