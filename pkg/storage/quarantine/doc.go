// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package quarantine keeps an object that cannot be read from keeping others from
// being served. Upstream fails every list, and with it the watch cache, of a
// resource that has one value which cannot be decrypted or decoded.
//
// Values are not looked at a second time for that: only when a list has failed are
// the keys that it names looked at, and if their values are damaged, they are set
// aside. From then on the etcd client that the resource is read through leaves them
// out of ranges and of watches. Reading such an object by its name still says what
// is wrong with it, it is never overwritten, and upstream's own option deletes it.
//
// An object that is left out looks as if it were deleted, so it is left out only
// where that can be answered for:
//
//   - Its value is at fault, and not a key service, a webhook or an etcd that does not
//     answer: those errors stay errors.
//   - It is one of a few. If most objects of a resource cannot be read it is rather
//     the keys that are wrong, and lists fail.
//   - Who lists to delete (a collection, a namespace, a definition) is refused,
//     because what is left out would be left behind for nobody to find.
//
// When a value can be read again, as after a key was added, it is written once more
// as it is: watches only learn of what is written.
package quarantine
