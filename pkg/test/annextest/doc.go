// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package annextest runs annex behind a main cluster of package maincluster, with no
// more rights than the manifests in artifacts/deploy give it: it logs in to the main
// cluster as its service account, and the main cluster reaches it through a Service.
package annextest
