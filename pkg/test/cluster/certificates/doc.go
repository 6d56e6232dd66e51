// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package certificates tests that certificates and CAs of an aggregated annex are replaced
// without a failed request, and that annex never trusts more than it should.
package certificates
