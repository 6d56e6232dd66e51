// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/test/annextest"
	"github.com/annex-dev/annex/pkg/test/maincluster"
)

const (
	behindObjects, behindBytes, behindRounds = 2000, 2500, 5
	behindRound                              = time.Second
)

// behindOperations are the most frequent ones of clients of a main cluster.
var behindOperations = regexp.MustCompile(`^(GET|LIST all|LIST page of 500|WATCH event to 50 watchers|update.*|status.*|merge patch|server-side apply|delete)$`)

// natives are records that kube-apiserver serves itself.
var natives = resource{"native.example.com", records.plural, records.kind}

// measureBehind compares requests to a main cluster for objects that it serves itself with the same requests for objects that
// annex serves behind it. The CPU times of kube-apiserver and annex are added.
func measureBehind(ctx context.Context, s *session) error {
	socket, mainEtcd, err := s.startEtcd(ctx, "main-etcd")
	if err != nil {
		return err
	}
	cluster, err := maincluster.Start(ctx, maincluster.Options{EtcdEndpoint: "unix://" + socket})
	if err != nil {
		return err
	}
	s.atEnd(cluster.Stop)
	socket, annexEtcd, err := s.startEtcd(ctx, "annex-etcd")
	if err != nil {
		return err
	}
	annex, err := s.startBehind(ctx, cluster, "--etcd-servers=unix://"+socket)
	if err != nil {
		return err
	}
	config, err := adminOf(cluster)
	if err != nil {
		return err
	}
	pids := func() []int { return []int{cluster.APIServerPID(), annex.Process.PID()} }
	native := &server{name: s.Servers[0], config: config, etcd: mainEtcd, prefix: "/registry/", objects: natives, pids: pids}
	behind := &server{name: s.Servers[1], config: config, etcd: annexEtcd, prefix: "/annex/", objects: records, pids: pids}
	if err := errors.Join(native.connect(), behind.connect()); err != nil {
		return err
	}
	if err := errors.Join(native.serve(ctx, natives), behind.host(ctx, annex, records)); err != nil {
		return err
	}
	all := []operation{creation(behindObjects, behindBytes, behindRounds)}
	for _, o := range operations(behindObjects, behindBytes, behindRound) {
		if behindOperations.MatchString(o.name) {
			all = append(all, o)
		}
	}
	for _, o := range all {
		logf("measuring %s ...", o.name)
		o.target, o.onCPU = 1, true
		f, err := o.compare(ctx, behindRounds, []*server{native, behind})
		if err != nil {
			return err
		}
		s.Figures = append(s.Figures, f)
	}
	return nil
}

// startBehind starts an annex behind a main cluster.
func (s *session) startBehind(ctx context.Context, cluster *maincluster.Cluster, flags ...string) (*annextest.Annex, error) {
	balancer, err := maincluster.NewLoadBalancer(maincluster.LoadBalancerOptions{})
	if err != nil {
		return nil, err
	}
	s.atEnd(balancer.Close)
	installation, err := annextest.Install(ctx, cluster, balancer)
	if err != nil {
		return nil, err
	}
	annex, err := installation.LaunchProcess(ctx, filepath.Join(s.dir, annexName), flags...)
	if err != nil {
		return nil, err
	}
	s.atEnd(annex.Shutdown)
	return annex, annex.WaitHosting(ctx)
}

// startAggregated starts a main cluster, and an annex behind it. It returns the annex as clients of the main cluster reach it, too.
func (s *session) startAggregated(ctx context.Context) (*annextest.Annex, *server, error) {
	cluster, err := maincluster.Start(ctx, maincluster.Options{})
	if err != nil {
		return nil, nil, err
	}
	s.atEnd(cluster.Stop)
	annex, err := s.startBehind(ctx, cluster)
	if err != nil {
		return nil, nil, err
	}
	config, err := adminOf(cluster)
	if err != nil {
		return nil, nil, err
	}
	through := &server{config: config, pids: func() []int { return []int{annex.Process.PID()} }}
	return annex, through, through.connect()
}

// host creates the CRD of a resource in the main cluster, and waits until annex serves its objects.
func (s *server) host(ctx context.Context, annex *annextest.Annex, r resource) error {
	if err := errors.Join(s.serve(ctx, r), annex.AllowGroup(ctx, r.group)); err != nil {
		return err
	}
	return s.label(ctx, annex, r)
}

// label labels the CRD of a resource, and waits until annex is published for it.
func (s *server) label(ctx context.Context, annex *annextest.Annex, r resource) error {
	label := fmt.Appendf(nil, `{"metadata":{"labels":{%q:"true"}}}`, hostingv1alpha1.HostedLabel)
	if _, err := s.api.CRDs().Patch(ctx, r.name(), types.MergePatchType, label, metav1.PatchOptions{}); err != nil {
		return err
	}
	return annex.WaitPublished(ctx, r.group, "v1")
}
