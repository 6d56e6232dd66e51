// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package maincluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"

	"k8s.io/apimachinery/pkg/runtime/schema"
	restclient "k8s.io/client-go/rest"
)

// ServedBy requests the resources of a group version from the main cluster, and returns
// the named header of the response, in which aggregated servers name themselves. Each request
// has a connection of its own, so that a load balancer may choose any kube-apiserver.
func (c *Cluster) ServedBy(ctx context.Context, version schema.GroupVersion, header string) (by string, err error) {
	path := c.Kube.Discovery().RESTClient().Get().AbsPath("apis", version.Group, version.Version).URL().String()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, path, nil)
	if err != nil {
		return "", fmt.Errorf("get %s from the main cluster: %w", version, err)
	}
	transport, err := unpooledTransport(c.Config)
	if err != nil {
		return "", fmt.Errorf("create a client of the main cluster: %w", err)
	}
	response, err := transport.RoundTrip(request)
	if err != nil {
		return "", fmt.Errorf("get %s from the main cluster: %w", version, err)
	}
	_, err = io.Copy(io.Discard, response.Body)
	if err = errors.Join(err, response.Body.Close()); err != nil {
		return "", fmt.Errorf("read the main cluster's response for %s: %w", version, err)
	}
	if response.StatusCode != http.StatusOK {
		return "", fmt.Errorf("the main cluster returned %s for %s", response.Status, version)
	}
	return response.Header.Get(header), nil
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
