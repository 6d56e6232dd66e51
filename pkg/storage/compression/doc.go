// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package compression keeps objects compressed in etcd.
//
// A Manager hands out a value.Transformer for each resource. It lies between the
// codec and what encrypts: ciphertext does not compress. What it writes begins with
// a magic, followed by one Zstandard frame with its size and a checksum; whatever
// has no magic is plain, so that both may lie side by side. Values that are small,
// or would hardly be smaller, stay plain.
//
// Objects of one resource are much alike, and short, so that most of what there is
// to gain comes from a dictionary: text that both sides know beforehand. One with
// what all Kubernetes objects have in common is part of annex and never changes.
// Better ones are trained on a resource's own objects and kept beside them in the
// Store, encrypted as they are, since they consist of pieces of them. The ID of a
// dictionary is made from its content: two with the same ID are the same, whatever
// Store or backup they come from.
//
// A dictionary is never deleted: a value that needs it may be in a backup, or about
// to be written by another replica. Their number per resource is bounded.
package compression
