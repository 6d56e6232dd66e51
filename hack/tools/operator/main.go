// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Command operator is a typical operator on controller-runtime, with leader election,
// caches, a finalizer, status conditions and server-side apply. It has nothing specific to
// annex; the end-to-end tests run it with the rights of manifests/rbac.yaml.
package main

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

func main() {
	namespace := flag.String("namespace", "broadcasting", "where Broadcasts and the lease are")
	targets := flag.String("targets", "", "the namespaces in which copies may be, separated by commas")
	flag.Parse() // controller-runtime adds --kubeconfig
	if *targets == "" {
		// Without a namespace, the caches would select all.
		fmt.Fprintln(os.Stderr, "operator: --targets must name a namespace")
		os.Exit(2)
	}
	ctrl.SetLogger(klog.Background())
	if err := run(*namespace, strings.Split(*targets, ",")); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// The waits of leader election; a takeover is to be seen in a test.
var (
	leaseDuration = 6 * time.Second
	renewDeadline = 4 * time.Second
	retryPeriod   = 500 * time.Millisecond
)

func run(namespace string, targets []string) error {
	config, err := ctrl.GetConfig()
	if err != nil {
		return fmt.Errorf("find the API server: %w", err)
	}
	scheme := runtime.NewScheme()
	if err := clientgoscheme.AddToScheme(scheme); err != nil {
		return fmt.Errorf("register the Kubernetes kinds: %w", err)
	}
	addToScheme(scheme)
	manager, err := ctrl.NewManager(config, ctrl.Options{
		Scheme:                        scheme,
		Metrics:                       server.Options{BindAddress: "0"},
		Cache:                         cacheOptions(namespace, targets),
		LeaderElection:                true,
		LeaderElectionID:              "broadcast-operator",
		LeaderElectionNamespace:       namespace,
		LeaderElectionReleaseOnCancel: true, // main ends then
		LeaseDuration:                 &leaseDuration,
		RenewDeadline:                 &renewDeadline,
		RetryPeriod:                   &retryPeriod,
	})
	if err != nil {
		return fmt.Errorf("make a manager: %w", err)
	}
	r := &reconciler{Client: manager.GetClient(), live: manager.GetAPIReader(), targets: targets, events: manager.GetEventRecorder("broadcast-operator")}
	if err := r.addTo(manager); err != nil {
		return fmt.Errorf("add the controller: %w", err)
	}
	return manager.Start(ctrl.SetupSignalHandler())
}

// cacheOptions restrict the caches to the operator's rights.
func cacheOptions(namespace string, targets []string) cache.Options {
	copies := map[string]cache.Config{}
	for _, target := range targets {
		copies[target] = cache.Config{}
	}
	return cache.Options{
		DefaultNamespaces: map[string]cache.Config{namespace: {}},
		ByObject: map[client.Object]cache.ByObject{
			&corev1.ConfigMap{}: {Namespaces: copies, Label: labels.SelectorFromSet(labels.Set{copyLabel: "true"})},
		},
	}
}
