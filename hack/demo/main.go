// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Command demo runs a main cluster (argument main-cluster), or a main cluster with annex and
// a tour of kubectl commands (argument demo). It removes everything when it ends.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"k8s.io/klog/v2"

	"github.com/annex-dev/annex/pkg/test/maincluster"
)

func main() {
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	interrupted := ctx.Err() != nil
	cancel()
	if err != nil && !interrupted {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	// etcd logs in this process.
	klog.LogToStderr(false)
	klog.SetOutput(io.Discard)
	if len(args) == 0 {
		return errors.New("the argument must be main-cluster or demo")
	}
	set := flag.NewFlagSet(args[0], flag.ContinueOnError)
	once := set.Bool("once", false, "End after the tour.")
	if err := set.Parse(args[1:]); err != nil {
		return err
	}
	switch args[0] {
	case "main-cluster":
		return withCluster(ctx, func(cluster *maincluster.Cluster) error {
			fmt.Printf("It has no nodes: objects are kept and looked after, but no pod ever runs.\nIts logs and certificates are in %s.\nCtrl-C stops it and removes everything.\n", cluster.Dir)
			return waitForEnd(ctx, *once)
		})
	case "demo":
		return withCluster(ctx, func(cluster *maincluster.Cluster) error { return runDemo(ctx, cluster, *once) })
	default:
		return fmt.Errorf("unknown argument %q: it must be main-cluster or demo", args[0])
	}
}

// withCluster runs a main cluster during use.
func withCluster(ctx context.Context, use func(*maincluster.Cluster) error) (err error) {
	began := time.Now()
	fmt.Println("starting a main cluster: etcd, kube-apiserver, kube-controller-manager ...")
	cluster, err := maincluster.Start(ctx, maincluster.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, cluster.Stop()) }()
	fmt.Printf("the main cluster is ready at %s after %.1f s, use it with: export KUBECONFIG=%s\n", cluster.URL, time.Since(began).Seconds(), cluster.Kubeconfig)
	return use(cluster)
}

func waitForEnd(ctx context.Context, once bool) error {
	if once {
		return nil
	}
	<-ctx.Done()
	return nil
}
