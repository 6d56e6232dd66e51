// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package encoded keeps custom resources as the JSON that clients read.
//
// The watch cache of a custom resource holds Objects instead of decoded ones. An object is
// decoded once, when it comes from etcd, by the codec of the custom resource: that prunes,
// defaults and converts it, so its JSON is what any read would return. A read copies the JSON.
// Callers that need decoded objects go through Storage.
package encoded
