// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package maincluster runs the control plane of a real Kubernetes cluster on loopback, for
// tests of aggregated API servers: etcd in this process, kube-apiserver and
// kube-controller-manager as child processes. There are no nodes, but everything that such a
// server depends on: authentication, RBAC, the aggregator, namespaces, garbage collection, quota.
//
//	cluster, err := maincluster.Start(ctx, maincluster.Options{})
//	if err != nil {
//		return err
//	}
//	defer cluster.Stop()
//
// RunTests does that for all tests of a package. The programs are built by `make bin/kube-apiserver
// bin/kube-controller-manager`; MAINCLUSTER_BIN names a folder with the programs of another release.
//
// The test starts the server under test, with a certificate of Cluster.ServingCertificate, an APIService with
// Cluster.CA, and Cluster.ServiceAccountKubeconfig, which has exactly the rights of its Pods. The cluster reaches it through a Service of type
// ExternalName (Cluster.ExternalNameService), either directly or through a LoadBalancer, which
// replaces Service and kube-proxy for several replicas.
//
// The package does not depend on annex: use it for your own server.
package maincluster
