// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package maincluster

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"testing"

	"k8s.io/klog/v2"
)

// StartForTest starts a cluster for a test that breaks it, and stops it when the test ends.
func StartForTest(t testing.TB, opts Options) *Cluster {
	t.Helper()
	cluster, err := Start(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cluster.Stop(); err != nil {
			t.Error(err)
		}
	})
	return cluster
}

// RunTests shares one cluster among the tests of a package. TestMain calls it with its
// *testing.M. It starts the cluster, calls use, runs the tests, stops the cluster and returns
// the exit code. If tests fail, it prints the ends of the cluster's logs.
func RunTests(m interface{ Run() int }, opts Options, use func(*Cluster)) int {
	// etcd logs in this process.
	klog.LogToStderr(false)
	klog.SetOutput(io.Discard)
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	cluster, err := Start(ctx, opts)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	// An interrupt ends the process, and the kernel kills the children.
	cancel()
	use(cluster)
	code := m.Run()
	if code != 0 {
		fmt.Fprint(os.Stderr, cluster.Logs())
	}
	if err := cluster.Stop(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = max(code, 1)
	}
	return code
}
