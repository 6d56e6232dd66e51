// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package maincluster

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes"
	restclient "k8s.io/client-go/rest"

	"github.com/annex-dev/annex/pkg/test/expect"
)

func TestDiscovered(t *testing.T) {
	t.Parallel()
	const response = `{"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/v2","items":[
		{"metadata":{"name":"other.io"},"versions":[{"version":"v1","resources":[{"resource":"others"}],"freshness":"Current"}]},
		{"metadata":{"name":"example.com"},"versions":[
			{"version":"v2","resources":[{"resource":"widgets"},{"resource":"gadgets","categories":["all"]},{"resource":"gizmos","categories":["all","annex.dev"]}],"freshness":"Current"},
			{"version":"v1","resources":[{"resource":"widgets"}],"freshness":"Stale"},
			{"version":"v1beta1","freshness":"Current"}]}]}`
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.URL.Path != "/apis" || req.Header.Get("Accept") != discovery.AcceptV2 {
			t.Errorf("requested %s with Accept %q", req.URL, req.Header.Get("Accept"))
		}
		w.Header().Set("Content-Type", discovery.AcceptV2)
		_, _ = io.WriteString(w, response)
	}))
	t.Cleanup(server.Close)
	config := &restclient.Config{Host: server.URL}
	kube, err := kubernetes.NewForConfig(config)
	expect.NoError(t, err)
	got, err := (&Cluster{Config: config, Kube: kube}).Discovered(t.Context(), "example.com")
	expect.NoError(t, err)
	expect.Equal(t, map[string][]string{"v2": {"widgets", "gadgets"}}, got, "resources by version")
}
