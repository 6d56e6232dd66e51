// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package garbagecollector deletes objects whose owners are gone, and finishes
// deletions that wait for dependents (foreground) or let them go (orphan).
//
// A graph holds the objects that have owners, are owners, or wait for dependents,
// with nothing but their metadata. Whatever changes there queues UIDs; what is
// done for one is decided by live reads, and written under the condition that the
// object is still the one that was read:
//
//   - An owner that nobody saw is looked for where its dependents say that it is.
//     Only what the server says about exactly that name makes it absent. A kind
//     that is not served makes nothing absent: its objects may come back with it.
//   - An object goes when each of its owners is absent, or is waiting for it to go.
//   - A deletion that waits for dependents, or lets them go, ends when all of
//     them are known. A resource that cannot be followed right now is listed
//     instead, and where that fails, only the deletions wait that it may have
//     dependents of.
//
// So one resource that cannot be read, such as one whose conversion webhook is
// broken, keeps no other from being collected.
package garbagecollector
