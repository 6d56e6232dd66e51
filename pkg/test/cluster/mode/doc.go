// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package mode tests that annex behind a main cluster serves whom that cluster
// knows and nobody else, while it is there, away, and coming back.
package mode
