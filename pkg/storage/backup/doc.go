// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package backup is the format of backup files.
//
// A file begins with a magic number and is then a sequence of frames: one byte for
// the kind, the lengths of a key and a value as unsigned varints, the key, the value.
//
//	header      what the backup is of, at which revision, as JSON
//	manifests   the definition and the HostedResource of each resource, as JSON
//	dictionary  what values below were compressed with
//	objects     values as they are in etcd, compressed and encrypted if they were;
//	            those are marked that could not be read
//	trailer     how much there was, as JSON, and a SHA-256 of everything before it
//
// What is needed to read an object comes before it, so that a file is written and
// read as a stream. A file without its trailer is not whole, and nothing in it is
// to be trusted before the trailer was read: Verify reads a file for that.
//
// Keys are relative to the prefix of the Store, which the header has: encryption
// binds a value to its whole key.
package backup
