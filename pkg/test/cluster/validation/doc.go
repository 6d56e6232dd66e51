// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package validation compares annex's validation and defaulting of the kinds of
// Kubernetes with kube-apiserver's: both get the same objects.
package validation
