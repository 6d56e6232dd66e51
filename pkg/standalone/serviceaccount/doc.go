// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package serviceaccount issues and authenticates the tokens of service accounts, and
// publishes the keys that verify them. Tokens are JWTs with Kubernetes' claims, so that
// programs which read those read these.
package serviceaccount
