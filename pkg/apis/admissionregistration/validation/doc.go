// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package validation checks objects of the group admissionregistration.k8s.io.
// It accepts what Kubernetes accepts, and refuses in the words of Kubernetes: the
// messages are part of the API.
//
// Who changes an object need not repair what was stored before: an update may
// leave alone what a new object may not have.
package validation
