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

// AnsweredBy asks the main cluster for the resources of a group version, and
// returns the named header of the answer: who is behind the main cluster says so
// there.
func (c *Cluster) AnsweredBy(ctx context.Context, version schema.GroupVersion, header string) (by string, err error) {
	path := c.Kube.Discovery().RESTClient().Get().AbsPath("apis", version.Group, version.Version).URL().String()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, path, nil)
	if err != nil {
		return "", fmt.Errorf("ask the main cluster for %s: %w", version, err)
	}
	mainHTTP, err := restclient.HTTPClientFor(c.Config)
	if err != nil {
		return "", fmt.Errorf("make a client of the main cluster: %w", err)
	}
	response, err := mainHTTP.Do(request)
	if err != nil {
		return "", fmt.Errorf("ask the main cluster for %s: %w", version, err)
	}
	// Read to its end, so that the connection can be used again.
	_, err = io.Copy(io.Discard, response.Body)
	if err = errors.Join(err, response.Body.Close()); err != nil {
		return "", fmt.Errorf("read the main cluster's answer for %s: %w", version, err)
	}
	if response.StatusCode != http.StatusOK {
		return "", fmt.Errorf("the main cluster answers %s for %s", response.Status, version)
	}
	return response.Header.Get(header), nil
}
