// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package maincopy works on the objects of an API group that the main cluster stores. A Move reads them by a
// Source. Once annex serves the group they are the main cluster's copy: a Rollback makes it equal to annex's
// objects, and Finalize deletes it.
//
// Requests for the versions of the group go to annex. Open adds another version to the definitions in
// the main cluster, which only the main cluster serves, and which only annex may write; Close removes
// it. A Syncer makes the copy of one resource equal to annex's objects. Objects that both sides have keep
// their UID. Those that were created in annex get a new one in the main cluster; the pairs are kept in
// annex's Store. ownerReferences get the new UIDs, by the Syncers within the group and by RewriteOwners
// elsewhere.
//
// Writes of the copy pass the admission of the main cluster, like all requests there. Its
// webhooks and policies see content that annex has accepted, with the same webhooks and policies.
// If one denies or changes it nevertheless, the Syncer reports it; Exempt exempts annex. What annex cannot write is the
// creationTimestamp of an object that was created in annex. Generations do not decrease.
//
// All functions can be called again after an error or a restart, and continue.
//
// MoveRules, NamespaceRules and OwnerRules are the rights that it needs in the main cluster in addition to
// rbac.yaml.
//
// # Progress of a Source
//
// A copy has caught up with a revision once the watch has delivered all changes up to it. Bookmarks say
// so, and API servers send them once a minute. To know it sooner, a probe opens a second watch at the
// revision up to which the first one is known to be complete. The API server sends a bookmark two
// seconds before the timeout of a watch, so a probe with a short timeout soon has all changes up to a
// bookmark. As soon as the first watch has delivered the last one of these changes, it is complete up to
// the revision of the bookmark too, because no change is between the two. This holds whichever API
// servers serve the two watches: each delivers every change in the order of revisions.
//
// A bookmark may be older than the revision that a caller waits for, if the API server's cache has not
// reached it. A consistent read while the probe is open makes the cache request its progress from etcd.
package maincopy
