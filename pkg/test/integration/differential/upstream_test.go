// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package differential

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"sync"
	"testing"

	"github.com/spf13/pflag"
	extensionsapiserver "k8s.io/apiextensions-apiserver/pkg/apiserver"
	extensionsoptions "k8s.io/apiextensions-apiserver/pkg/cmd/server/options"
	generatedopenapi "k8s.io/apiextensions-apiserver/pkg/generated/openapi"
	"k8s.io/apiserver/pkg/endpoints/openapi"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/util/compatibility"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	utilopenapi "k8s.io/apiserver/pkg/util/openapi"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	basecompatibility "k8s.io/component-base/compatibility"

	"github.com/annex-dev/annex/pkg/test/expect"
	"github.com/annex-dev/annex/pkg/test/poll"
)

// startUpstream starts an unmodified apiextensions-apiserver without a cluster. Upstream's package for it reads
// a file of its source, which does not exist in a test that was built with -trimpath.
func (p *pair) startUpstream(t testing.TB, flags ...string) {
	t.Helper()
	config, err := p.upstreamConfig(t, flags)
	expect.NoError(t, err)
	server, err := config.Complete().New(genericapiserver.NewEmptyDelegate())
	expect.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	stopped := make(chan error, 1)
	go func() { stopped <- server.GenericAPIServer.PrepareRun().RunWithContext(ctx) }()
	stop := sync.OnceFunc(func() {
		cancel()
		expect.Succeeds(t, <-stopped, "stop upstream's server")
	})
	t.Cleanup(stop)
	p.upstream = newServer(t, server.GenericAPIServer.LoopbackClientConfig, stop)
	poll.UntilNoError(t, "upstream's server is healthy", func() error {
		response, _, err := p.upstream.get(t.Context(), request{path: "/healthz"})
		if err == nil && response.StatusCode != http.StatusOK {
			err = errors.New(response.Status)
		}
		return err
	})
}

// upstreamConfig returns the configuration of a server that sends no requests to other servers.
func (p *pair) upstreamConfig(t testing.TB, flags []string) (*extensionsapiserver.Config, error) {
	kubeconfig := unusedKubeconfig(t)
	options := extensionsoptions.NewCustomResourceDefinitionsServerOptions(io.Discard, io.Discard)
	// Flags must not change the feature gates of this process, which annex has too.
	registry, features := basecompatibility.NewComponentGlobalsRegistry(), utilfeature.DefaultMutableFeatureGate.DeepCopy()
	if err := registry.Register(basecompatibility.DefaultKubeComponent, compatibility.DefaultKubeEffectiveVersionForTest(), features); err != nil {
		return nil, err
	}
	options.ServerRunOptions.ComponentGlobalsRegistry = registry
	set := pflag.NewFlagSet("", pflag.ContinueOnError)
	options.AddFlags(set)
	if err := set.Parse(append([]string{
		"--etcd-servers=" + p.etcd.URL, "--etcd-prefix=" + etcdPrefix,
		"--kubeconfig=" + kubeconfig, "--authentication-kubeconfig=" + kubeconfig, "--authorization-kubeconfig=" + kubeconfig,
		"--authentication-skip-lookup", "--enable-priority-and-fairness=false",
		"--disable-admission-plugins=NamespaceLifecycle,MutatingAdmissionWebhook,ValidatingAdmissionWebhook,ValidatingAdmissionPolicy,MutatingAdmissionPolicy",
	}, flags...)); err != nil {
		return nil, err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	serving := options.RecommendedOptions.SecureServing
	serving.Listener, serving.BindPort = listener, listener.Addr().(*net.TCPAddr).Port
	serving.ServerCert.CertDirectory, serving.ExternalAddress = t.TempDir(), listener.Addr().(*net.TCPAddr).IP
	if err := options.Complete(); err != nil {
		return nil, err
	}
	if err := options.Validate(); err != nil {
		return nil, err
	}
	config, err := options.Config()
	if err != nil {
		return nil, err
	}
	definitions := utilopenapi.GetOpenAPIDefinitionsWithoutDisabledFeatures(generatedopenapi.GetOpenAPIDefinitions)
	config.GenericConfig.OpenAPIConfig = genericapiserver.DefaultOpenAPIConfig(definitions, openapi.NewDefinitionNamer(extensionsapiserver.Scheme))
	return config, nil
}

// unusedKubeconfig returns the path of a kubeconfig that leads nowhere: the options need one.
func unusedKubeconfig(t testing.TB) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	config := clientcmdapi.NewConfig()
	config.Clusters["none"] = &clientcmdapi.Cluster{Server: "http://127.0.0.1:1"}
	config.Contexts["none"] = &clientcmdapi.Context{Cluster: "none"}
	config.CurrentContext = "none"
	expect.NoError(t, clientcmd.WriteToFile(*config, path))
	return path
}
