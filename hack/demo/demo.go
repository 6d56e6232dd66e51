// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/annex-dev/annex/pkg/test/annextest"
	"github.com/annex-dev/annex/pkg/test/maincluster"
	"github.com/annex-dev/annex/pkg/test/process"
)

// group is that of the CRD among the examples.
const group = "example.com"

// runDemo puts annex behind the cluster and shows it.
func runDemo(ctx context.Context, cluster *maincluster.Cluster, once bool) (err error) {
	began := time.Now()
	fmt.Println("\nstarting annex behind it, with the service account and rights of artifacts/deploy ...")
	balancer, err := maincluster.NewLoadBalancer(maincluster.LoadBalancerOptions{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, balancer.Close()) }()
	installation, err := annextest.Install(ctx, cluster, balancer)
	if err != nil {
		return err
	}
	dataDir := filepath.Join(cluster.Dir, "annex")
	annex, err := installation.LaunchProcess(ctx, dataDir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, annex.Shutdown()) }()
	fmt.Printf("annex is ready at %s after %.1f s\n", annex.URL, time.Since(began).Seconds())
	if err := installation.WaitHosting(ctx); err != nil {
		return fmt.Errorf("%w\nstderr of annex:\n%s", err, annex.Process.Stderr())
	}
	t := &tour{cluster: cluster, annex: annex}
	if t.kubectl, err = process.Bin(ctx, "kubectl"); err != nil {
		return err
	}
	if t.root, err = process.ModuleRoot(ctx); err != nil {
		return err
	}
	if err := t.run(ctx); err != nil {
		return fmt.Errorf("%w\nstderr of annex:\n%s", err, annex.Process.Stderr())
	}
	if !once {
		fmt.Printf(`
Go on in another shell; Ctrl-C here stops everything and removes it.
  use the main cluster:   export KUBECONFIG=%s
  use annex directly:     export KUBECONFIG=%s
  stop annex alone:       kill %d
`, cluster.Kubeconfig, annex.Kubeconfig, annex.Process.PID())
	}
	return waitForEnd(ctx, once)
}

// etcdKeys lists keys in annex's etcd.
func etcdKeys(ctx context.Context, dataDir, prefix string) ([]string, error) {
	socket := filepath.Join(dataDir, "etcd", "client.sock")
	if _, err := os.Stat(socket); err != nil {
		return nil, fmt.Errorf("look for the socket of annex's etcd: %w", err)
	}
	annexEtcd, err := clientv3.New(clientv3.Config{Endpoints: []string{"unix://" + socket}, Logger: zap.NewNop()})
	if err != nil {
		return nil, fmt.Errorf("connect to annex's etcd: %w", err)
	}
	defer annexEtcd.Close()
	found, err := annexEtcd.Get(ctx, prefix, clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil {
		return nil, fmt.Errorf("list the keys below %s in annex's etcd: %w", prefix, err)
	}
	keys := make([]string, 0, len(found.Kvs))
	for _, pair := range found.Kvs {
		keys = append(keys, string(pair.Key))
	}
	return keys, nil
}
