// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package maincopy works on the objects that the main cluster still stores of an API group that
// annex serves: the main cluster's copy. Rollback makes it equal to annex's objects, Finalize
// deletes it.
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
// # Rights
//
// ClusterRules, NamespaceRules and OwnerRules return the rights in the main cluster. Each function
// needs, with GROUP for all resources of the group:
//
//   - Open, Close: list and get customresourcedefinitions, update those of the group; get apiservices;
//     list namespaces; list, get, update and delete GROUP; the rights of Freeze
//   - Exempt, EndExemption, Hooks: list webhook configurations, admission policies and their bindings, and
//     customresourcedefinitions; Exempt and EndExemption patch those that mainadmission.Rules names
//   - Probe: get, create and update GROUP
//   - EndWatches: list and get customresourcedefinitions, update those of the group
//   - Definitions, Resources, IsOpen: list customresourcedefinitions
//   - Syncer: get, list, create, update and delete GROUP; list and get customresourcedefinitions, update
//     those of the group, and get apiservices, because it opens the copy again when a chart has removed
//     the version
//   - RewriteOwners: get, list and patch all resources whose objects may be owned by objects of
//     the group; it reports those for which it has no rights. With the admission plugin
//     OwnerReferencesPermissionEnforcement also update GROUP/finalizers
//   - RewriteGoneOwners: the same; get apiservices; get and list GROUP
//   - DeleteAll: get, list, update and delete GROUP
//   - RaiseRevision: create, update and delete configmaps in namespace annex-system. Without
//     delete, the ConfigMaps stay
//   - Freeze, MayFreeze, Forget, Unfreeze, HoldGarbageCollector, ReleaseGarbageCollector: create
//     validatingadmissionpolicies and validatingadmissionpolicybindings; get, update and delete
//     those two of the group; list and get customresourcedefinitions, and update those of the
//     group, for a request that is never stored
package maincopy
