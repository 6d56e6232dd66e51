// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package objectsize bounds how large objects are, and how many large ones are
// worked on at the same time.
//
// Two limits meet where an object is written: annex's own, which is about the
// object as it is encoded, and that of the Store's etcd, which is about what is
// left of it after compression and encryption. Whoever is refused is told both
// sizes. They are known in different places, so a write carries them with it in
// its context: the outermost transformer notes them, the outermost storage tells.
package objectsize
