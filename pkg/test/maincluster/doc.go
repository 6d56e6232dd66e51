// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package maincluster runs the control plane of a real Kubernetes cluster on
// loopback, for tests of API servers that stand behind one: etcd in this process,
// kube-apiserver and kube-controller-manager as child processes. There are no
// nodes, so nothing runs in it; everything that an aggregated API server meets is
// there: logins, RBAC, the aggregator, namespaces, garbage collection, quota.
//
//	cluster, err := maincluster.Start(ctx, maincluster.Options{})
//	if err != nil {
//		return err
//	}
//	defer cluster.Stop()
//
// The server under test runs wherever the test runs it. The cluster reaches it by
// a Service of type ExternalName (Cluster.ExternalNameService), either directly or
// through a LoadBalancer, which does for several replicas what a Service and
// kube-proxy do.
//
// The package knows no particular API server: use it for your own.
package maincluster
