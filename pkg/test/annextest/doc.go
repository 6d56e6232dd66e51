// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package annextest runs annex behind a main cluster of package maincluster, with exactly the
// permissions of the manifests in artifacts/deploy: annex logs in as its service account, and
// the main cluster reaches it through a Service.
package annextest
