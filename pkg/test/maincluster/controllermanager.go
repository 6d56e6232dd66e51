// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package maincluster

import (
	"context"
	"path/filepath"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// Controllers of kube-controller-manager that are relevant for API servers.
const (
	NamespaceController              = "namespace-controller"
	GarbageCollectorController       = "garbage-collector-controller"
	ResourceQuotaController          = "resourcequota-controller"
	ServiceAccountController         = "serviceaccount-controller"
	ServiceAccountTokenController    = "serviceaccount-token-controller"
	RootCAPublisherController        = "root-ca-certificate-publisher-controller"
	ClusterRoleAggregationController = "clusterrole-aggregation-controller"

	// NoControllers as the only entry disables kube-controller-manager.
	NoControllers = "-*"
)

// DefaultControllers is the default of Options.Controllers.
func DefaultControllers() []string {
	return []string{
		NamespaceController, GarbageCollectorController, ResourceQuotaController, ServiceAccountController,
		ServiceAccountTokenController, RootCAPublisherController, ClusterRoleAggregationController,
	}
}

func (c *Cluster) controllerManagerFlags() []string {
	return append([]string{
		"--kubeconfig=" + filepath.Join(c.Dir, controllerKubecfg),
		"--secure-port=0", // it needs no endpoint
		"--leader-elect=false",
		"--controllers=" + strings.Join(c.opts.Controllers, ","),
		// Each controller has the permissions of a real cluster.
		"--use-service-account-credentials=true",
		"--service-account-private-key-file=" + filepath.Join(c.Dir, serviceAccountKey),
		"--root-ca-file=" + filepath.Join(c.Dir, clusterCAFile),
		"--kube-api-qps=500",
		"--kube-api-burst=1000",
	}, c.opts.ControllerManagerFlags...)
}

func (c *Cluster) wantsControllers() bool {
	return !slices.Equal(c.opts.Controllers, []string{NoControllers})
}

// startControllerManager returns when the controllers work.
func (c *Cluster) startControllerManager(ctx context.Context) error {
	if !c.wantsControllers() {
		return nil
	}
	started, err := startChild(c.Dir, "kube-controller-manager", c.opts.Programs.KubeControllerManager, c.controllerManagerFlags())
	if err != nil {
		return err
	}
	c.controllerManager.Store(started)
	if !slices.Contains(c.opts.Controllers, ServiceAccountController) {
		return nil
	}
	// Users of a new cluster need this service account first.
	return c.waitUntil(ctx, started, c.Config, "the service account default/default exists", func(ctx context.Context, mainClient kubernetes.Interface) error {
		_, err := mainClient.CoreV1().ServiceAccounts(metav1.NamespaceDefault).Get(ctx, "default", metav1.GetOptions{})
		return err
	})
}
