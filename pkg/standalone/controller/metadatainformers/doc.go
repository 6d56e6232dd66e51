// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package metadatainformers follows every object that annex serves, and keeps as
// little of each as garbage collection and quotas need.
//
// Informers of client-go would keep a PartialObjectMetadata of each object, and
// three goroutines for each resource. Here a reflector feeds a store that is only
// a map of small structs, and tells handlers of changes in what it keeps: the
// renewal of a Lease, for one, is none.
//
// Which resources there are is not left to discovery, which may be behind without
// saying so: definitions of custom resources say which of those there are, and
// discovery only which kinds are compiled in. Custom resources are read in the
// version that they are stored in, so that a broken conversion webhook is in the
// way of only those objects that were stored before that version was chosen.
//
// A resource that cannot be read holds up no other. Who needs to know about all
// asks which are current.
package metadatainformers
