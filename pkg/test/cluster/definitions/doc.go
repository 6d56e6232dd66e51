// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package definitions tests that annex behind a main cluster follows the
// definitions there that are labelled annex.dev/hosted: what it takes over, what
// it leaves alone and says why, and that nothing that happens to a definition
// loses an object.
package definitions
