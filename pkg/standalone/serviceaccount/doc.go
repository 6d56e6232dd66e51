// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package serviceaccount makes and recognises the tokens of service accounts, and
// publishes the keys that others verify them with. Tokens are JWTs with the claims
// that Kubernetes gives them, so that what reads those reads these.
package serviceaccount
