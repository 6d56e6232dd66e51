// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package resourcequota keeps status.used of ResourceQuotas true.
//
// Admission charges a quota before an object is written, by raising status.used. So
// there may be objects that are charged and cannot be seen yet, and what can be
// counted is too little to be written there as it is: with it, requests that run at
// the same time could pass the limit together. The controller therefore takes off
// what it sees deleted, one by one, and goes down to what it counts only once every
// charge is old enough for its object to be there, or never to come: some creates
// fail after they were charged. It goes up to what it counts at once.
//
// Objects are counted as they are seen to come and go, from metadata alone; nothing
// is listed for a quota.
package resourcequota
