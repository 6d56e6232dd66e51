// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package hostedresource creates a HostedResource for every CustomResourceDefinition and
// writes its status: the phase, the Store's readiness, the usage, how full the limits
// are, and which objects cannot be read. All of it is one reconcile and one write.
//
// HostedResources that this controller created have the label annex.dev/automanaged. They
// are deleted with their CustomResourceDefinition, unless the annotation
// annex.dev/definition-from names the main cluster as the source. A HostedResource that a
// user created, or removed the label from, stays and waits for its definition.
//
// Usage changes with every write to the resource. The status follows at most once per
// second and always ends at the exact numbers.
package hostedresource
