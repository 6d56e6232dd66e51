// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package move copies the objects of a resource while they are served: a Mover from a Store into another, an
// Importer from the main cluster's API into a Store, a Syncer from a Store into that API. An Exporter takes the steps
// of the last at the Store.
//
// The copy and what follows it are one loop. It watches the source from a revision that is recorded
// with the copy, and keeps this: for all keys up to the cursor, the target has what the source had
// at the recorded revision. A page of further keys is read at that revision, and events of keys
// beyond the cursor are skipped, because these keys will be read later. So the copy never needs
// history of the source that is older than a moment. If the watch was compacted nevertheless, the
// cursor returns to the first key: pages are compared with what the target has, and only
// differences are written.
//
// Each batch for a Store is one transaction that also writes the record at the target, on the condition
// that no other process has: it is applied exactly once, and a Mover that was replaced writes nothing more. A key at
// the source fences the freeze, the closing and the deletion there.
//
// A Syncer has no transactions and records nothing: it compares all objects first. Pages are read at the present. What
// changes after one was read is an event of a key that the cursor has passed.
//
// A resource is open in one Store at most (pkg/storage/layer/revision). The order of a switch is: freeze
// the source, apply the rest, close the source, open the target with higher resource versions than
// the source. Only then its HostedResource may name the target.
//
// The main cluster's API cannot be frozen, and once requests are sent to annex it cannot be read either. Only the watch
// goes on that an Importer has opened before. So the order is: prove that the watch delivers what is written, send
// requests to annex, where they wait because the target is closed, apply changes until there are none for a while, open
// the target. A late change, of an API server that has learned of the route late, is applied if no client has written the
// object since.
//
// Every method can be called again after an error or a restart, and continues.
package move
