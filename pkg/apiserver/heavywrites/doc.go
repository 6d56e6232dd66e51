// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package heavywrites treats requests with large bodies as what they are to a
// server: a body that is too large is refused before it is read, those that are
// large wait until there is memory for them, and flow control counts them for more
// than one request.
package heavywrites
