// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package conventions checks the rules of the code base that a machine can check: which
// package may import which, style, links, verification of certificates, and prose.
package conventions
