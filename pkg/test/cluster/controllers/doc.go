// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package controllers has the tests that need the default controllers of kube-controller-manager: of the
// main cluster that the other suites run on, that annex does not disturb it, healthy or not, and of the
// main cluster's copy of a group.
package controllers
