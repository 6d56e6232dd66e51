// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package objectsize bounds how large objects are, and how many large ones are
// worked on at the same time.
//
// Two limits meet where an object is written: annex's own, which is about the
// object as it is encoded, and that of the Store's etcd, which is about what is
// left of it after compression and encryption. A refusal names both
// sizes: the outermost transformer records them, the outermost storage reports them.
package objectsize
