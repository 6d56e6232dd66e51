// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package mainobjects reads the objects of a custom resource from an API server, for a copy of them: pages at an
// exact revision or at the present, and a watch of the main cluster.
//
// A value is what an API server of custom resources stores: canonical JSON without the resource version,
// and with all other fields as the main cluster has them.
//
// # Progress
//
// A copy has caught up with a revision once the watch has delivered all changes up to it. Bookmarks say
// so, and API servers send them once a minute. To know it sooner, a probe opens a second watch at the
// revision up to which the first one is known to be complete. The API server sends a bookmark two
// seconds before the timeout of a watch, so a probe with a short timeout soon has all changes up to a
// bookmark. As soon as the first watch has delivered the last one of these changes, it is complete up to
// the revision of the bookmark too, because no change is between the two. This holds whichever API
// servers serve the two watches: each delivers every change in the order of revisions.
//
// A bookmark may be older than what is waited for, if the API server's cache has not heard of the
// revision. A consistent read while the probe is open lets the cache ask etcd.
package mainobjects
