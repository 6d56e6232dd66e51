// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package routing sends the objects of every resource to the Store that its
// HostedResource names, for compiled-in resources and custom resources alike.
//
// It replaces upstream's storage decorators. Upstream needs a storage.Interface when it
// creates a resource; the one from here finds its Store when it is first used.
// A resource without a Store, or with one that is unavailable, answers 503, and nothing else
// waits for it.
//
// A route is valid for one definition: a Store is used for a custom resource only if the
// HostedResource names it for the UID of the CustomResourceDefinition that is served. A
// stale cache can therefore delay requests, but never lead to another Store.
//
// stack.go lists the layers between a resource and its etcd.
package routing
