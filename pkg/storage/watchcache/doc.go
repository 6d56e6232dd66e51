// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package watchcache keeps custom resources in watch caches as the JSON that clients read.
//
// The codec of the custom resource decodes an Object once, when it comes from etcd. It prunes, defaults and
// converts the Object, so that any read returns a copy of its JSON. Stored objects that the codec would not
// change, which are nearly all, are not decoded at all (Schema).
//
// Memory accounts for the objects of a cache, has them in order, and answers lists. Budget keeps the caches
// of all custom resources within an amount of memory. Packing keeps compiled-in objects, which are large and
// rarely read, as they are stored.
package watchcache
