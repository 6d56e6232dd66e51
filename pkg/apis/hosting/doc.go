// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// +k8s:deepcopy-gen=package
// +groupName=hosting.annex.dev

// Package hosting has the internal types of annex's own API group: Store, an etcd, and
// HostedResource, a resource that annex stores. The code that handles requests uses these
// types; clients use the versioned types, which document the fields.
package hosting
