// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package maincluster

import (
	"fmt"

	utilversion "k8s.io/apimachinery/pkg/util/version"
	"k8s.io/client-go/discovery"
)

// Version returns the version of its Kubernetes.
func (c *Cluster) Version() (*utilversion.Version, error) {
	client, err := discovery.NewDiscoveryClientForConfig(c.Config)
	if err != nil {
		return nil, fmt.Errorf("make a client of the main cluster: %w", err)
	}
	info, err := client.ServerVersion()
	if err != nil {
		return nil, fmt.Errorf("read the version of the main cluster: %w", err)
	}
	return utilversion.ParseSemantic(info.GitVersion)
}
