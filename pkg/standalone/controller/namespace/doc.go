// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package namespace finishes the deletion of namespaces: it empties a namespace
// that is being deleted, custom resources included, and lets go of it once
// nothing is left.
//
// A namespace must never go while it may still hold something, because its
// contents would stay behind and turn up in the next namespace of that name.
// So whenever the controller cannot know everything that a namespace may hold
// (discovery fails or is partial, a resource answers with an error), it deletes
// what it does know, says what is wrong in the namespace's conditions, and tries
// again; it never takes silence for emptiness.
package namespace
