// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package testing starts bin/annex where the integration tests of apiextensions-apiserver
// start a server inside the test process. It declares what they use of upstream's package
// k8s.io/apiextensions-apiserver/pkg/cmd/server/testing, and replaces it in the copy of
// the module that they are compiled from.
package testing

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/pflag"
	extensionsapiserver "k8s.io/apiextensions-apiserver/pkg/apiserver"
	"k8s.io/apiextensions-apiserver/pkg/cmd/server/options"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/util/compatibility"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	restclient "k8s.io/client-go/rest"
	basecompatibility "k8s.io/component-base/compatibility"

	"github.com/annex-dev/annex/pkg/test/faultproxy"
	"github.com/annex-dev/annex/pkg/test/process"
)

// BinaryVariable names the environment variable with the path of bin/annex.
const BinaryVariable = "ANNEX_BINARY"

const (
	// etcdVariable names the variable with the etcd for upstream's fixtures.
	etcdVariable = "KUBE_INTEGRATION_ETCD_URL"

	// serverTimeout bounds the start and the stop of a server.
	serverTimeout = time.Minute
)

// TestServer is a running server.
type TestServer struct {
	ClientConfig    *restclient.Config
	ServerOpts      *options.CustomResourceDefinitionsServerOptions
	TearDownFn      func()
	CompletedConfig extensionsapiserver.CompletedConfig
}

// TestServerInstanceOptions is empty, as it is upstream.
type TestServerInstanceOptions struct{}

// Logger has the methods of *testing.T that are used.
type Logger interface {
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
	Logf(format string, args ...any)
}

// forwardedFlags are passed to annex. The others make upstream's server work without a
// cluster, or name an etcd.
var forwardedFlags = []string{"watch-cache", "feature-gates", "emulated-version", "disable-admission-plugins", "etcd-prefix"}

// dataDirs are the data directories by prefix in etcd: a test that starts a second server
// with the same prefix expects the data of the first.
var dataDirs sync.Map

// StartTestServer starts annex with the flags that the tests give to upstream's server.
func StartTestServer(t Logger, _ *TestServerInstanceOptions, flags []string, _ *storagebackend.Config) (TestServer, error) {
	opts, forwarded, err := parse(flags)
	if err != nil {
		return TestServer{}, err
	}
	etcd := &opts.RecommendedOptions.Etcd.StorageConfig
	dataDir, err := dataDirOf(etcd.Prefix)
	if err != nil {
		return TestServer{}, err
	}
	// The tests' etcd clients would use TLS with a socket.
	port, err := faultproxy.New(context.Background(), filepath.Join(dataDir, "etcd", "client.sock"))
	if err != nil {
		return TestServer{}, err
	}
	etcd.Transport.ServerList = []string{"http://" + port.Address()}
	// One test reads it.
	if err := os.Setenv(etcdVariable, etcd.Transport.ServerList[0]); err != nil {
		return TestServer{}, err
	}
	annex, err := process.Start(os.Getenv(BinaryVariable), dataDir, append(forwarded, gates()...)...)
	if err != nil {
		return TestServer{}, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), serverTimeout)
	defer cancel()
	if err := annex.WaitReady(ctx); err != nil {
		annex.Kill()
		return TestServer{}, err
	}
	clientConfig, err := annex.Config()
	if err != nil {
		annex.Kill()
		return TestServer{}, err
	}
	generic := genericapiserver.NewRecommendedConfig(extensionsapiserver.Codecs)
	generic.EffectiveVersion = compatibility.DefaultBuildEffectiveVersion()
	generic.ExternalAddress, generic.LoopbackClientConfig = "localhost:443", clientConfig
	generic.RESTOptionsGetter = options.NewCRDRESTOptionsGetter(*opts.RecommendedOptions.Etcd, nil, nil)
	return TestServer{
		ClientConfig:    clientConfig,
		ServerOpts:      opts,
		TearDownFn:      func() { stop(t, annex); port.Close() },
		CompletedConfig: (&extensionsapiserver.Config{GenericConfig: generic}).Complete(),
	}, nil
}

// parse returns the options that the tests read, and annex's flags.
func parse(flags []string) (*options.CustomResourceDefinitionsServerOptions, []string, error) {
	opts := options.NewCustomResourceDefinitionsServerOptions(io.Discard, io.Discard)
	opts.ServerRunOptions.ComponentGlobalsRegistry = basecompatibility.NewComponentGlobalsRegistry()
	features, version := utilfeature.DefaultMutableFeatureGate.DeepCopy(), compatibility.DefaultKubeEffectiveVersionForTest()
	version.SetEmulationVersion(features.EmulationVersion())
	if err := opts.ServerRunOptions.ComponentGlobalsRegistry.Register(basecompatibility.DefaultKubeComponent, version, features); err != nil {
		return nil, nil, err
	}
	set := pflag.NewFlagSet("", pflag.ContinueOnError)
	opts.AddFlags(set)
	if err := set.Parse(flags); err != nil {
		return nil, nil, err
	}
	prefix := &opts.RecommendedOptions.Etcd.StorageConfig.Prefix
	*prefix = "/" + strings.Trim(*prefix, "/")
	// The tests read stored values, and cannot decompress them.
	forwarded := []string{"--storage-compression=None"}
	set.Visit(func(flag *pflag.Flag) {
		if slices.Contains(forwardedFlags, flag.Name) {
			forwarded = append(forwarded, "--"+flag.Name+"="+strings.Trim(flag.Value.String(), "[]"))
		}
	})
	return opts, forwarded, nil
}

// gates returns the emulated version and the feature gates that a test has set in its own
// process, in which upstream's server would run.
func gates() []string {
	var flags []string
	if emulated := utilfeature.DefaultMutableFeatureGate.EmulationVersion(); !emulated.EqualTo(compatibility.DefaultBuildEffectiveVersion().EmulationVersion()) {
		flags = append(flags, fmt.Sprintf("--emulated-version=%d.%d", emulated.Major(), emulated.Minor()))
	}
	for name, spec := range utilfeature.DefaultMutableFeatureGate.GetAll() {
		if enabled := utilfeature.DefaultFeatureGate.Enabled(name); enabled != spec.Default {
			flags = append(flags, fmt.Sprintf("--feature-gates=%s=%v", name, enabled))
		}
	}
	return flags
}

func dataDirOf(prefix string) (string, error) {
	if found, ok := dataDirs.Load(prefix); ok {
		return found.(string), nil
	}
	// TMPDIR is a directory that the runner removes.
	dir, err := os.MkdirTemp("", "annex-")
	dataDirs.Store(prefix, dir)
	return dir, err
}

// stop ends annex. If that fails, the test fails with what annex has logged.
func stop(t Logger, annex *process.Annex) {
	if err := annex.Stop(serverTimeout); err != nil {
		t.Errorf("%v", err)
	}
}
