// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package maincluster

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	restclient "k8s.io/client-go/rest"

	"github.com/annex-dev/annex/pkg/test/freeport"
)

const (
	// startTimeout is long: a machine may run several clusters and compile.
	startTimeout = 2 * time.Minute
	pollInterval = 100 * time.Millisecond
	portAttempts = 10

	portTaken = "address already in use"
)

// apiServerFlags returns the flags of every cluster, followed by the flags in the options.
func (c *Cluster) apiServerFlags() []string {
	file := func(name string) string { return filepath.Join(c.Dir, name) }
	return append([]string{
		"--etcd-servers=" + c.opts.EtcdEndpoint,
		"--bind-address=127.0.0.1",
		"--advertise-address=127.0.0.1",
		"--secure-port=" + strconv.Itoa(c.port),
		"--tls-cert-file=" + file(servingName+".crt"),
		"--tls-private-key-file=" + file(servingName+".key"),
		"--cert-dir=" + c.Dir,
		"--client-ca-file=" + file(clusterCAFile),
		"--token-auth-file=" + file(tokensFile),
		"--requestheader-client-ca-file=" + file(frontProxyCAFile),
		"--requestheader-allowed-names=" + frontProxyName,
		"--requestheader-username-headers=X-Remote-User",
		"--requestheader-uid-headers=X-Remote-Uid",
		"--requestheader-group-headers=X-Remote-Group",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-",
		"--proxy-client-cert-file=" + file(frontProxyName+".crt"),
		"--proxy-client-key-file=" + file(frontProxyName+".key"),
		"--authorization-mode=RBAC",
		"--admission-control-config-file=" + file(admissionConfig),
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file=" + file(serviceAccountKey),
		"--service-account-signing-key-file=" + file(serviceAccountKey),
		"--service-cluster-ip-range=10.0.0.0/24",
		"--endpoint-reconciler-type=none",
		// Requests go to the external name or cluster IP of a Service, not to its pods.
		"--enable-aggregator-routing=false",
	}, c.opts.APIServerFlags...)
}

// startAPIServer starts it on c.port and waits until it is ready.
func (c *Cluster) startAPIServer(ctx context.Context) error {
	started, err := startChild(c.Dir, "kube-apiserver", c.opts.Programs.KubeAPIServer, c.apiServerFlags())
	if err != nil {
		return err
	}
	c.apiServer.Store(started)
	return c.waitReady(ctx, started, c.at(c.port))
}

// waitReady waits until an API server is ready, and kills it otherwise. config has its own address.
func (c *Cluster) waitReady(ctx context.Context, started *child, config *restclient.Config) error {
	err := c.waitUntil(ctx, started, config, "kube-apiserver is ready", func(ctx context.Context, mainClient kubernetes.Interface) error {
		return mainClient.CoreV1().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
	})
	if err != nil {
		started.kill()
	}
	return err
}

// startOnFreePort starts the API server for the first time.
func (c *Cluster) startOnFreePort(ctx context.Context) error {
	var err error
	for range portAttempts {
		if c.port, err = freeport.Find(ctx); err != nil {
			return err
		}
		if err = c.writeKubeconfigs(); err != nil {
			return err
		}
		if err = c.startAPIServer(ctx); err == nil || !strings.Contains(err.Error(), portTaken) {
			return err
		}
	}
	return err
}

// waitUntil waits until a check of a program that was started succeeds.
func (c *Cluster) waitUntil(ctx context.Context, program *child, config *restclient.Config, what string, check func(context.Context, kubernetes.Interface) error) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	mainClient, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("create a client of the main cluster: %w", err)
	}
	var last error
	err = wait.PollUntilContextCancel(ctx, pollInterval, true, func(ctx context.Context) (bool, error) {
		if !program.running() {
			return false, fmt.Errorf("%s exited while starting: %w", program.name, program.exitErr)
		}
		attempt, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		last = check(attempt, mainClient)
		return last == nil, nil
	})
	if err != nil && ctx.Err() != nil {
		err = errors.Join(context.Cause(ctx), last)
	}
	if err != nil {
		return fmt.Errorf("wait until %s: %w\n%s", what, err, program.tail())
	}
	return nil
}

// StopAPIServer stops the API server as an upgrade of the main cluster does, and ends its
// connections. etcd and the controller manager continue to run.
func (c *Cluster) StopAPIServer(ctx context.Context) error {
	return c.apiServer.Load().stop(ctx)
}

// APIServerPID returns the ID of the API server's process.
func (c *Cluster) APIServerPID() int { return c.apiServer.Load().command.Process.Pid }

// KillAPIServer kills the API server.
func (c *Cluster) KillAPIServer() { c.apiServer.Load().kill() }

// StartAPIServer restarts the API server at its address, and returns when it is ready.
func (c *Cluster) StartAPIServer(ctx context.Context) error {
	if c.apiServer.Load().running() {
		return errors.New("kube-apiserver runs already")
	}
	return c.startAPIServer(ctx)
}
