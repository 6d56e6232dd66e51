// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package serving serves HTTPS so that clients can be asked to go elsewhere without
// losing a request.
//
// An aggregator sends everything over one HTTP/2 connection. When a server wants
// it to leave, Go's answers GOAWAY with the last request that it has seen. Whatever
// was on the way by then is dropped, and the aggregator can send only requests
// without a body again: a write is answered with 503. RFC 9113 section 6.8 says
// what to do instead: a first GOAWAY that excludes no request, and the one that
// does after everything that crossed it has arrived. Go's server has no such first
// step, so this package puts the frame into the connection between two frames of
// Go's.
//
// Upstream's server starts its own HTTP server and has no place for another. It is
// given a listener that never has a connection: the Server of this package listens
// in its stead, and ends when upstream closes that listener.
package serving
