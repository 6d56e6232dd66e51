// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package citizen proves on a real main cluster that annex does not hurt it: its
// documents, its controllers, its rules, with annex well, with annex's store dead
// and with annex gone.
package citizen
