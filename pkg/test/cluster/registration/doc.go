// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package registration tests the APIServices that annex publishes in the main cluster: their
// order, and what happens when they are edited, deleted or claimed by another server, and when
// annex stops.
package registration
