// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package injection tests InjectionProfiles behind a main cluster: annex applies them to the
// resources that it serves, and `annex injector` to those of the main cluster, with a certificate
// from the main cluster's API.
package injection
