// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package maincluster

import (
	"k8s.io/apiserver/pkg/util/webhook"
	aggregatorapiserver "k8s.io/kube-aggregator/pkg/apiserver"
)

// ServiceResolver finds the Services that webhooks name, by their cluster IP or
// external name, as kube-apiserver does.
func (c *Cluster) ServiceResolver() webhook.ServiceResolver {
	return aggregatorapiserver.NewClusterIPServiceResolver(c.Informers.Core().V1().Services().Lister())
}
