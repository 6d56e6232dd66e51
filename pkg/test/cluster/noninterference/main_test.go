// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package noninterference

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/annex-dev/annex/pkg/storage/embeddedetcd"
	"github.com/annex-dev/annex/pkg/test/annextest"
	"github.com/annex-dev/annex/pkg/test/faultproxy"
	"github.com/annex-dev/annex/pkg/test/maincluster"
)

// mainCluster is shared by all tests.
var mainCluster *maincluster.Cluster

func TestMain(m *testing.M) {
	// The quota controller counts a new kind at its next full sync, by default every five minutes.
	options := maincluster.Options{ControllerManagerFlags: []string{"--resource-quota-sync-period=5s"}}
	os.Exit(maincluster.RunTests(suite{m}, options, func(cluster *maincluster.Cluster) { mainCluster = cluster }))
}

// parallelTests exceeds the number of cores because tests mostly wait.
const parallelTests = "16"

// suite stops the shared annex before the main cluster stops.
type suite struct{ *testing.M }

// Run runs the tests.
func (s suite) Run() int {
	flag.Parse()
	explicit := false
	flag.Visit(func(f *flag.Flag) { explicit = explicit || f.Name == "test.parallel" })
	if !explicit {
		if err := flag.Set("test.parallel", parallelTests); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	code := s.M.Run()
	if err := shared.stop(); err != nil {
		fmt.Fprintln(os.Stderr, "the shared annex:", err)
		code = max(code, 1)
	}
	return code
}

// sharedAnnex is one annex for all tests, behind a proxy to its etcd. Only tests that do not
// run in parallel may stop it or freeze the proxy, and must undo that.
type sharedAnnex struct {
	once         sync.Once
	err          error
	dir          string
	etcd         *embeddedetcd.Server
	proxy        *faultproxy.Proxy
	balancer     *maincluster.LoadBalancer
	installation *annextest.Installation
	annex        *annextest.Annex

	// before are the main cluster's documents before annex was added.
	before documents
	// known is a group of Widgets that kube-controller-manager has had time to discover.
	known string
}

var shared sharedAnnex

// running returns the shared annex, and starts it at the first call.
func running(t *testing.T) *sharedAnnex {
	t.Helper()
	shared.once.Do(func() {
		if shared.err = shared.start(context.Background()); shared.err == nil {
			shared.known = shared.newWidgets(t).group
		}
	})
	if shared.err != nil {
		t.Fatalf("start the shared annex: %v", shared.err)
	}
	return &shared
}

func (s *sharedAnnex) start(ctx context.Context) error {
	var err error
	if s.before, err = readDocuments(ctx, mainCluster.Config); err != nil {
		return fmt.Errorf("read the main cluster's documents before annex is added: %w", err)
	}
	if s.dir, err = os.MkdirTemp("", "noninterference-"); err != nil {
		return err
	}
	socket := filepath.Join(s.dir, "etcd.sock")
	if s.etcd, err = embeddedetcd.Start(ctx, embeddedetcd.Config{Dir: filepath.Join(s.dir, "etcd"), SocketPath: socket, UnsafeNoFsync: true}); err != nil {
		return err
	}
	if s.proxy, err = faultproxy.New(ctx, socket); err != nil {
		return err
	}
	if s.balancer, err = maincluster.NewLoadBalancer(maincluster.LoadBalancerOptions{}); err != nil {
		return err
	}
	if s.installation, err = annextest.Install(ctx, mainCluster, s.balancer); err != nil {
		return err
	}
	if err := s.launch(); err != nil {
		return err
	}
	return s.installation.WaitHosting(ctx)
}

// launch starts or restarts annex.
func (s *sharedAnnex) launch() error {
	var err error
	s.annex, err = s.installation.Launch(filepath.Join(s.dir, "data"), "--etcd-servers=http://"+s.proxy.Address())
	return err
}

func (s *sharedAnnex) stop() error {
	var errs []error
	if s.annex != nil {
		errs = append(errs, s.annex.Shutdown())
	}
	if s.balancer != nil {
		errs = append(errs, s.balancer.Close())
	}
	if s.proxy != nil {
		s.proxy.Close()
	}
	if s.etcd != nil {
		errs = append(errs, s.etcd.Close())
	}
	if s.dir != "" {
		errs = append(errs, os.RemoveAll(s.dir))
	}
	return errors.Join(errs...)
}
