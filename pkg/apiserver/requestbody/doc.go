// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package requestbody receives the bodies of requests. A body has to arrive without
// long pauses, is limited in size, and reserves a part of a budget if it is large. It
// is received after authentication and before the request waits for a seat, so that
// slow clients do not occupy seats.
package requestbody
