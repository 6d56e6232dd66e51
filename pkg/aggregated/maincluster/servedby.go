// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package maincluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	restclient "k8s.io/client-go/rest"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
)

// ServedBy requests the resources of a group version from the main cluster, and returns the PublishedByHeader of the
// response.
func (c *Cluster) ServedBy(ctx context.Context, version schema.GroupVersion) (by string, err error) {
	response, _, err := c.getUnpooled(ctx, "", "apis", version.Group, version.Version)
	return response.Get(hostingv1alpha1.PublishedByHeader), err
}

// Discovered returns the resources of a group that the main cluster's aggregated discovery has, by version,
// without those that a kube-apiserver read from annex, and versions whose server did not answer.
func (c *Cluster) Discovered(ctx context.Context, group string) (map[string][]string, error) {
	_, body, err := c.getUnpooled(ctx, discovery.AcceptV2, "apis")
	if err != nil {
		return nil, err
	}
	var groups apidiscoveryv2.APIGroupDiscoveryList
	if err := json.Unmarshal(body, &groups); err != nil {
		return nil, fmt.Errorf("decode the main cluster's discovery: %w", err)
	}
	versions := map[string][]string{}
	for _, of := range groups.Items {
		if of.Name != group {
			continue
		}
		for _, version := range of.Versions {
			if version.Freshness == apidiscoveryv2.DiscoveryFreshnessStale {
				continue
			}
			for _, resource := range version.Resources {
				if slices.Contains(resource.Categories, hostingv1alpha1.ServedCategory) {
					continue
				}
				versions[version.Version] = append(versions[version.Version], resource.Resource)
			}
		}
	}
	return versions, nil
}

// getUnpooled gets a path of the main cluster. Each request has a connection of its own, so that a load
// balancer may choose any kube-apiserver.
func (c *Cluster) getUnpooled(ctx context.Context, accept string, path ...string) (http.Header, []byte, error) {
	url := c.Kube.Discovery().RESTClient().Get().AbsPath(path...).URL().String()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, nil, fmt.Errorf("get %s from the main cluster: %w", strings.Join(path, "/"), err)
	}
	if accept != "" {
		request.Header.Set("Accept", accept)
	}
	transport, err := unpooledTransport(c.Config)
	if err != nil {
		return nil, nil, fmt.Errorf("create a client of the main cluster: %w", err)
	}
	response, err := transport.RoundTrip(request)
	if err != nil {
		return nil, nil, fmt.Errorf("get %s from the main cluster: %w", strings.Join(path, "/"), err)
	}
	body, err := io.ReadAll(response.Body)
	if err = errors.Join(err, response.Body.Close()); err != nil {
		return nil, nil, fmt.Errorf("read the main cluster's response for %s: %w", strings.Join(path, "/"), err)
	}
	if response.StatusCode != http.StatusOK {
		return nil, nil, fmt.Errorf("the main cluster returned %s for %s", response.Status, strings.Join(path, "/"))
	}
	return response.Header, body, nil
}

// unpooledTransport returns a transport that opens a connection for each request.
func unpooledTransport(config *restclient.Config) (http.RoundTripper, error) {
	tlsConfig, err := restclient.TLSConfigFor(config)
	if err != nil {
		return nil, err
	}
	return restclient.HTTPWrappersForConfig(config, &http.Transport{
		Proxy: config.Proxy, DialContext: config.Dial, TLSClientConfig: tlsConfig, DisableKeepAlives: true,
	})
}
