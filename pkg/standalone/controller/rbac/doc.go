// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package rbac makes the roles and bindings that every annex has, without undoing
// what administrators add, and keeps the rules of aggregated cluster roles.
package rbac
