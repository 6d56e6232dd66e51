// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package compression compresses objects in etcd.
//
// A Manager returns a value.Transformer per resource. It compresses between the codec and
// encryption, because ciphertext does not compress. A compressed value begins with a magic,
// followed by one Zstandard frame with its size and a checksum. A value without the magic
// is plain; both may coexist. Values that are small or barely compress stay plain.
//
// Objects of a resource are short and similar, so a dictionary gains the most. The generic
// dictionary, with text common to all Kubernetes objects, is part of annex and never
// changes. Better ones are trained on a resource's objects and stored beside them,
// encrypted like them, because they consist of pieces of them. The ID of a dictionary is
// derived from its content.
//
// A dictionary is never deleted: a backup or another replica may need it. Their number per
// resource is bounded.
package compression
