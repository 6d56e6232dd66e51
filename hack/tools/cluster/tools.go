// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build tools

// Package cluster pins the programs of the main cluster.
package cluster

import (
	_ "k8s.io/kubernetes/cmd/kube-apiserver"
	_ "k8s.io/kubernetes/cmd/kube-controller-manager"
)
