// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package serving

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	restclient "k8s.io/client-go/rest"

	"github.com/annex-dev/annex/pkg/test/annextest"
	"github.com/annex-dev/annex/pkg/test/expect"
	"github.com/annex-dev/annex/pkg/test/testserver"
)

const (
	// validationNamespace has the namespaced objects.
	validationNamespace = "validation"
	// quotasNamespace has the quotas: other objects beside them would change their status.
	quotasNamespace = "validation-quotas"
)

// servers get the same requests: kube-apiserver and annex.
var servers [2]*server

// startServers sets servers. It skips the test if they have different minor versions of Kubernetes.
func startServers(t *testing.T) {
	t.Helper()
	if !annextest.HasVersionOfAnnex(t, mainCluster) {
		t.Skip("kube-apiserver has another minor version of Kubernetes than annex, and each validates differently")
	}
	annex := testserver.Start(t, "--api-audiences=https://kubernetes.default.svc")
	servers = [2]*server{newServer(t, "kube-apiserver", mainCluster.Config), newServer(t, "annex", annex.AnnexConfig)}
}

// server is one of the two servers.
type server struct {
	name   string
	url    string
	client *http.Client
}

func newServer(t *testing.T, name string, config *restclient.Config) *server {
	t.Helper()
	config = restclient.CopyConfig(config)
	// The administrators of the two servers have different names.
	config.Impersonate = restclient.ImpersonationConfig{UserName: "validation", Groups: []string{"system:masters"}}
	client, err := restclient.HTTPClientFor(config)
	expect.NoError(t, err)
	s := &server{name: name, url: strings.TrimSuffix(config.Host, "/"), client: client}
	for _, created := range []struct{ path, name string }{
		{"/api/v1/namespaces", validationNamespace},
		{"/api/v1/namespaces", quotasNamespace},
		{"/api/v1/namespaces/" + validationNamespace + "/serviceaccounts", "tokens"},
	} {
		response, err := s.send(t.Context(), http.MethodPost, created.path, object{"metadata": object{"name": created.name}})
		expect.NoError(t, err)
		if response.Code != http.StatusCreated {
			t.Fatalf("create %s in %s at %s: %s", created.name, created.path, name, response)
		}
	}
	return s
}

// object is an object, or a part of one, as JSON has it.
type object = map[string]any

// response is a response without what differs from server to server and from time to
// time.
type response struct {
	Code     int      `json:"code"`
	Warnings []string `json:"warnings,omitempty"`
	Body     object   `json:"body"`
}

func (r response) String() string {
	text, err := json.Marshal(r)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// send sends an object, or none, and returns the response.
func (s *server) send(ctx context.Context, method, path string, body object) (response, error) {
	content, err := json.Marshal(body)
	if err != nil {
		return response{}, err
	}
	request, err := http.NewRequestWithContext(ctx, method, s.url+path, bytes.NewReader(content))
	if err != nil {
		return response{}, err
	}
	request.Header.Set("Content-Type", "application/json")
	reply, err := s.client.Do(request)
	if err != nil {
		return response{}, fmt.Errorf("%s %s of %s: %w", method, path, s.name, err)
	}
	defer reply.Body.Close()
	received := response{Code: reply.StatusCode}
	for _, text := range reply.Header.Values("Warning") {
		// annex warns about what it does not have.
		if !strings.Contains(text, "annex") {
			received.Warnings = append(received.Warnings, text)
		}
	}
	content, err = io.ReadAll(reply.Body)
	if err == nil {
		err = json.Unmarshal(content, &received.Body)
	}
	if err != nil {
		return response{}, fmt.Errorf("read the response of %s to %s %s: %w", s.name, method, path, err)
	}
	return received, nil
}
