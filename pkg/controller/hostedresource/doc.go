// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package hostedresource keeps one HostedResource for every
// CustomResourceDefinition, and its status true.
//
// A HostedResource that this controller made carries the label
// annex.dev/automanaged and goes when its CustomResourceDefinition is gone, unless
// the annotation annex.dev/definition-from says that the main cluster has one. One
// that somebody made, or whose label somebody removed, is theirs: it stays and
// waits for its definition.
//
// How much there is of a resource changes with every write to it. The status
// follows at most once per second, and always ends at the exact numbers.
package hostedresource
