// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package certificates tests that certificates and authorities behind a main
// cluster change without a failed request, and that trust never widens.
package certificates
