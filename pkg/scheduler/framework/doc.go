// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package framework is what the plugins of the scheduler are written against: what
// they see of a resource and of a Store, what they may answer, and how their answers
// become a decision. Nothing in it asks a server, keeps time or remembers: the same
// resource and the same Stores make the same decision.
package framework
