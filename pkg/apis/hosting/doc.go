// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// +k8s:deepcopy-gen=package
// +groupName=hosting.annex.dev

// Package hosting holds the internal types of annex's own API group: Store, a
// place where objects are kept, and HostedResource, one resource that annex
// keeps. Code in this repository that handles requests works on these types;
// clients see the versions in the packages below.
package hosting
