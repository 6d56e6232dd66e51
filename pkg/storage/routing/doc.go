// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package routing sends the objects of every resource to the Store that its
// HostedResource names, for compiled-in resources and custom resources alike.
//
// It takes the place of upstream's storage decorators. What upstream asks for when
// it makes a resource is a storage.Interface at once; what it gets here finds its
// Store when it is first used, and keeps to it. A resource without a Store and one
// whose Store is down answer 503, and nothing else waits for them.
//
// A route holds for one definition: a Store is used for a custom resource only if
// the HostedResource says so for the UID of the CustomResourceDefinition that is
// served. A view that lags behind can therefore say "not yet", but never lead to
// another Store.
package routing
