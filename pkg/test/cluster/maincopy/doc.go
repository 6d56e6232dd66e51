// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package maincopy tests pkg/aggregated/maincopy with a real kube-apiserver and
// kube-controller-manager as the main cluster. A second kube-apiserver stands in for annex: it has
// objects with the same UIDs, and requests of the main cluster can be routed to it.
package maincopy
