// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package validation

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"

	utilversion "k8s.io/apimachinery/pkg/util/version"
	restclient "k8s.io/client-go/rest"

	"github.com/annex-dev/annex/pkg/test/maincluster"
	"github.com/annex-dev/annex/pkg/test/testserver"
)

// namespace has the namespaced objects.
const namespace = "validation"

// servers get the same requests: kube-apiserver and annex.
var servers [2]*server

func TestMain(m *testing.M) {
	os.Exit(run(m))
}

func run(m *testing.M) int {
	dataDir, err := os.MkdirTemp("", "annex-validation-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dataDir)
	var standalone *testserver.Server
	opts := maincluster.Options{Controllers: []string{maincluster.NoControllers}}
	code := maincluster.RunTests(sameVersion{m}, opts, func(cluster *maincluster.Cluster) {
		servers[0], err = newServer("kube-apiserver", cluster.Config)
		if err == nil {
			standalone, err = testserver.Launch(dataDir, "--api-audiences=https://kubernetes.default.svc")
		}
		if err == nil {
			servers[1], err = newServer("annex", standalone.AnnexConfig)
		}
		if err != nil {
			panic(err)
		}
	})
	if standalone != nil {
		err = standalone.Shutdown()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = max(code, 1)
	}
	return code
}

// sameVersion skips the tests if the servers have different minor versions of Kubernetes: each
// validates differently.
type sameVersion struct{ *testing.M }

// Run runs the tests.
func (m sameVersion) Run() int {
	var versions [2]*utilversion.Version
	for i, s := range servers {
		var err error
		if versions[i], err = s.version(context.Background()); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	if versions[0].Minor() != versions[1].Minor() {
		fmt.Printf("skipped: kube-apiserver has Kubernetes %s, annex %s, and each minor version validates differently\n", versions[0], versions[1])
		return 0
	}
	return m.M.Run()
}

// server is one of the two servers.
type server struct {
	name   string
	url    string
	client *http.Client
}

func newServer(name string, config *restclient.Config) (*server, error) {
	config = restclient.CopyConfig(config)
	// The administrators of the two servers have different names.
	config.Impersonate = restclient.ImpersonationConfig{UserName: "validation", Groups: []string{"system:masters"}}
	client, err := restclient.HTTPClientFor(config)
	if err != nil {
		return nil, err
	}
	s := &server{name: name, url: strings.TrimSuffix(config.Host, "/"), client: client}
	for _, created := range []struct{ path, name string }{
		{"/api/v1/namespaces", namespace},
		{"/api/v1/namespaces/" + namespace + "/serviceaccounts", "tokens"},
	} {
		response, err := s.send(context.Background(), http.MethodPost, created.path, object{"metadata": object{"name": created.name}})
		if err != nil {
			return nil, err
		}
		if response.Code != http.StatusCreated {
			return nil, fmt.Errorf("create %s in %s at %s: %s", created.name, created.path, name, response)
		}
	}
	return s, nil
}

// version returns the server's version of Kubernetes.
func (s *server) version(ctx context.Context) (*utilversion.Version, error) {
	response, err := s.send(ctx, http.MethodGet, "/version", nil)
	if err != nil {
		return nil, err
	}
	version, err := utilversion.ParseGeneric(fmt.Sprint(response.Body["gitVersion"]))
	if err != nil {
		return nil, fmt.Errorf("read the version of %s: %w", s.name, err)
	}
	return version, nil
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
