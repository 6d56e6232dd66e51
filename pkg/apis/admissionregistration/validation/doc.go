// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package validation validates objects of admissionregistration.k8s.io as Kubernetes
// does, with the same messages, which are part of the API.
//
// Updates tolerate invalid values that are stored already (ratcheting).
package validation
