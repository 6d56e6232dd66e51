// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package definition has annex follow the CustomResourceDefinitions of the main
// cluster that are labelled annex.dev/hosted.
//
// The main cluster sends requests for a whole group version to one place, so the
// definitions of a group go together. Annex takes a group over when all of its
// definitions are labelled and the main cluster keeps no object of any of them.
// It makes the same definitions in annex, and once all are established it clears
// the takeover in the status of their HostedResources: the controller that publishes
// APIServices goes by that. Until the main cluster sends its requests to annex,
// and some time longer, watches that began at the very revision at which there
// were no objects stay open. If an object slips in nevertheless, all writes of the
// group are stopped, and if annex keeps no object of it the group is given back. A
// version that a hosted group gets later is taken over the same way.
//
// From then on the main cluster's definition is the source, and annex's follows.
// It has annex's finalizer. When it is deleted, annex deletes its own definition with
// its objects, and removes the finalizer after the main cluster has forgotten the
// resource. Nothing is deleted because a definition in the main cluster lost its label
// or is missing.
//
// What happens to a group is decided by plan, a function of what there is. All
// that is remembered is in the objects: the annotations of annex's definitions,
// the APIServices, and the status of the HostedResources.
package crdsync
