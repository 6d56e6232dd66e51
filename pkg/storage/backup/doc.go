// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package backup reads and writes backups of Stores.
//
// A file begins with a magic number, followed by frames: one byte for the kind, the lengths
// of the key and the value as unsigned varints, the key, the value.
//
//	header      the Store, the resource and the revision, as JSON
//	manifests   the CRD and the HostedResource of each resource, as JSON
//	dictionary  dictionaries of compressed values
//	objects     values as in etcd, compressed and encrypted; unreadable ones are marked
//	trailer     the numbers of records, as JSON, and a SHA-256 of everything before it
//
// Files are streams: the dictionaries come before the objects that need them. Readers must
// not trust any content before the trailer.
//
// Keys are relative to the prefix of the Store, which is in the header because encryption
// binds a value to its whole key.
package backup
