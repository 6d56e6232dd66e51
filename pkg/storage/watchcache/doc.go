// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package watchcache keeps custom resources in watch caches as the JSON that clients read.
//
// An Object is decoded once, when it comes from etcd, by the codec of the custom resource: that prunes,
// defaults and converts it, so its JSON is what any read returns. A read copies the JSON. Stored objects
// that the codec would not change, which are nearly all, are not decoded at all (Schema).
//
// Memory accounts for the objects of a cache, has them in order, and answers lists. Budget keeps the caches
// of all custom resources within an amount of memory. Packing keeps compiled-in objects, which are large and
// rarely read, as they are stored.
package watchcache
